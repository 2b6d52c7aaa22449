//! All prompts that Belljar itself sends to a model, one file each.

pub(crate) const PLAN: &str = include_str!("../prompts/plan.md");
pub(crate) const REQUEST: &str = include_str!("../prompts/request.md");
pub(crate) const CONTEXT: &str = include_str!("../prompts/context.md");
pub(crate) const FILES: &str = include_str!("../prompts/files.md");
pub(crate) const CODE: &str = include_str!("../prompts/code.md");
pub(crate) const PLANNED: &str = include_str!("../prompts/planned.md");
pub(crate) const START: &str = include_str!("../prompts/start.md");
pub(crate) const EMPTY: &str = include_str!("../prompts/empty.md");
pub(crate) const CUT: &str = include_str!("../prompts/cut.md");
pub(crate) const COMPUTE: &str = include_str!("../prompts/compute.md");
pub(crate) const UNKNOWN_TOOL: &str = include_str!("../prompts/unknown_tool.md");
pub(crate) const AGENT: &str = include_str!("../prompts/agent.md");
pub(crate) const AGENT_CODE: &str = include_str!("../prompts/agent_code.md");
pub(crate) const SKILL: &str = include_str!("../prompts/skill.md");
pub(crate) const CONVERSATION: &str = include_str!("../prompts/conversation.md");
pub(crate) const AGENT_SCRIPT: &str = include_str!("../prompts/agent_script.md");
pub(crate) const AGENT_FILES: &str = include_str!("../prompts/agent_files.md");
pub(crate) const SKILLS: &str = include_str!("../prompts/skills.md");
pub(crate) const INCOMPLETE: &str = include_str!("../prompts/incomplete.md");
pub(crate) const NO_RESULT: &str = include_str!("../prompts/no_result.md");

/// Fills the placeholder of a prompt. The inserted text is not scanned again, so it cannot contain
/// placeholders.
pub(crate) fn fill(prompt: &str, gap: &str, text: &str) -> String {
    let mark = format!("{{{gap}}}");
    match prompt.trim_end().split_once(&mark) {
        Some((before, after)) => format!("{before}{text}{after}"),
        None => prompt.trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_wrote_is_never_taken_for_a_gap() {
        assert_eq!(fill(REQUEST, "request", "{request} {files}"), "Request: {request} {files}");
    }

    #[test]
    fn every_prompt_has_the_gaps_that_are_filled() {
        let gaps = [
            (REQUEST, "request"),
            (CONTEXT, "context"),
            (FILES, "files"),
            (PLANNED, "plan"),
            (SKILLS, "skills"),
            (SKILL, "skill"),
            (AGENT_CODE, "tool"),
            (INCOMPLETE, "reason"),
            (NO_RESULT, "error"),
        ];
        for (prompt, gap) in gaps {
            assert_eq!(prompt.matches(&format!("{{{gap}}}")).count(), 1, "{gap}");
        }
    }
}
