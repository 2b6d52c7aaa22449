#[path = "../harness/mod.rs"]
mod harness;

mod smoke;
