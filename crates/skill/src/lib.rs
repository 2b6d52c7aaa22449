//! Skills in the open format: a folder with a `SKILL.md`, which tells an agent how to do something,
//! and the scripts, references and assets that belong to it.
//!
//! A skill is disclosed step by step: [`Skill::entry`] is what an agent is told of each one,
//! [`Skill::body`] is read when one is used, and [`Skill::read`] when a file of it is. [`validate`] is
//! strict, for authors; [`Skill::open`] is lenient, for those who only want to use what others wrote.
//!
//! A folder may come from anybody. Nothing outside of it is ever opened, whatever links it has, and
//! what it can make this crate read, keep or walk is bounded.

mod built_in;
mod error;
mod folder;
mod frontmatter;
mod rules;
mod skill;

pub use error::SkillError;
pub use folder::{FILES_MAX, FolderError, SkillListing, TOTAL_BYTES_MAX};
pub use skill::{SKILL_BYTES_MAX, Skill, SkillContents, SkillSummary, validate};
