//! Every call of the system's that a command makes fails once: what it writes is then whole, or
//! there is an error in one line, and nothing of it is left.

mod attack;
mod commands;
mod record;
mod room;
mod stand_ins;
