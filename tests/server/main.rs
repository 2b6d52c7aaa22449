//! What users of the server do, and what its attackers try, over HTTP against the real binary.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "../harness/mod.rs"]
mod harness;

mod agents;
mod approval_troubles;
mod approvals;
mod attached;
mod audit;
mod borrowed;
mod calls;
mod catalog;
mod channel_floods;
mod clients;
mod clocked;
mod crashes;
mod document;
mod documents;
mod environments;
mod executions;
mod exposed;
mod faults;
mod floods;
mod functions;
mod fuzz;
mod hostile;
mod hostile_packages;
mod identity;
mod installs;
mod issuer;
mod kept;
mod launches;
mod logs;
mod network;
mod oauth;
mod operator;
mod output;
mod overload;
mod people;
mod permissions;
mod raw;
mod raw_json;
mod redaction;
mod rights;
mod routes_deny;
mod sealed_answers;
mod secrets;
mod sessions;
mod site;
mod slow;
mod streams;
mod taken_rights;
mod tools;
// A build without OTLP refuses the option; `crates/cli/src/cli/serve/no_traces.rs` tests that.
#[cfg(feature = "otlp")]
mod traces;
mod uploads;
mod variables;
mod vault;
mod volumes;
mod world;
