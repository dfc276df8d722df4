//! The tests of `swath-region` in one program: it is linked once, and all of them share the cores.

mod heap;
mod lemma;
mod machine;
mod space;
mod sparse;
