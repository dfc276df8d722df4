//! One rule of the lint in each file, with a test that shows a breach.

pub(crate) mod circles;
pub(crate) mod documentation;
pub(crate) mod folders;
pub(crate) mod layers;
pub(crate) mod licences;
pub(crate) mod manifests;
pub(crate) mod names;
pub(crate) mod no_std;
pub(crate) mod papers;
pub(crate) mod readmes;
pub(crate) mod rooms;
pub(crate) mod unsafe_code;
pub(crate) mod words;
