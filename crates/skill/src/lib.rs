//! Skills in the open format: a directory with a `SKILL.md`, which tells an agent how to do a task,
//! and the scripts, references and assets that belong to it.
//!
//! A skill is disclosed progressively: [`Skill::summary`] is what an agent sees of every skill,
//! [`Skill::body`] is read when the agent uses one, and [`Skill::read`] when it needs a file.
//! [`validate`] is strict, for authors; [`Skill::open`] is lenient, for users of other people's
//! skills.
//!
//! [`SkillFiles`] are the checked files of an upload.
//!
//! A directory may be hostile. This crate never opens anything outside of it, whatever links it
//! contains, and limits what it reads, keeps and traverses.

mod archive;
mod built_in;
mod error;
mod folder;
mod frontmatter;
mod rules;
mod skill;
mod upload;

pub use archive::ArchiveError;
pub use error::SkillError;
pub use folder::{FILES_MAX, FolderError, SkillListing, TOTAL_BYTES_MAX};
pub use skill::{SKILL_BYTES_MAX, Skill, SkillContents, SkillSummary, validate};
pub use upload::{SkillFiles, UPLOAD_BYTES_MAX, UploadError};
