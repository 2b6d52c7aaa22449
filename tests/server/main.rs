//! The server over HTTP, against the real binary: what its users do, and what attackers try.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "../harness/mod.rs"]
mod harness;

mod agents;
mod approval_troubles;
mod approvals;
mod attachment_rights;
mod audit;
mod calls;
mod capabilities;
mod catalog;
mod channel_floods;
mod clients;
mod clocked;
mod crashes;
mod delegated_rights;
mod document;
mod documents;
mod environments;
mod executions;
mod exposed;
mod faults;
mod file_urls;
mod floods;
mod functions;
mod fuzz;
mod hostile;
mod hostile_packages;
mod identity;
mod installs;
mod issuer;
mod kinds_of_work;
mod launches;
mod logs;
mod network;
mod oauth;
mod operator;
mod output;
mod overload;
mod permissions;
mod policy_changes;
mod principals;
mod raw;
mod raw_json;
mod redaction;
mod revocation;
mod rights;
mod routes_deny;
mod sealed_answers;
mod secrets;
mod sessions;
mod skills;
mod slow;
mod statements;
mod streams;
mod tools;
mod unsaved_tests;
mod web_server;
// A build without OTLP refuses the option; `crates/cli/src/cli/serve/no_traces.rs` tests that.
mod test_server;
#[cfg(feature = "otlp")]
mod traces;
mod unread;
mod uploads;
mod variables;
mod vault;
mod volumes;
