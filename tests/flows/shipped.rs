//! The environments `cortex` and `coderunner`, as code finds them that was written for them.

use crate::atlas::imports_everything;
use crate::harness::{self, run_with};
use engine::Engine;
use serde_json::{Value, json};
use types::{EnvironmentStatus, ExecutionStatus};

async fn value(environment: &str, code: &str) -> Value {
    let engine = Engine::start(harness::config());
    let execution = run_with(&engine, harness::command(environment, code)).await.execution;
    assert_eq!(execution.status, ExecutionStatus::Succeeded, "{code}: {:?}", execution.error);
    execution.value.unwrap_or_default()
}

// proves S-043
#[tokio::test(flavor = "multi_thread")]
async fn cortex_is_python_3_12() {
    let version = value("cortex", "import sys; list(sys.version_info[:2])").await;
    assert_eq!(version, json!([3, 12]));
}

// proves S-044
#[tokio::test(flavor = "multi_thread")]
async fn cortex_has_the_whole_standard_library() {
    imports_everything("cortex").await;
}

// proves S-045
#[tokio::test(flavor = "multi_thread")]
async fn cortex_has_its_packages_in_the_versions_that_are_listed() {
    let names = ["numpy", "pandas", "scipy", "pyarrow", "matplotlib", "plotly"];
    let code =
        format!("import importlib\n[importlib.import_module(it).__version__ for it in {names:?}]");
    let found = value("cortex", &code).await;
    let engine = Engine::start(harness::config());
    let listed = engine.environment("cortex").unwrap();
    assert_eq!(listed.status, EnvironmentStatus::Ready);
    let version = |name: &str| {
        let package = listed.packages.iter().find(|package| package.name == name);
        package.map(|package| package.version.clone())
    };
    assert_eq!(found, json!(names.map(version)));
}

/// By the names of their packages, and of the modules that are imported.
const CODERUNNER: [(&str, &str); 20] = [
    ("openai", "openai"),
    ("anthropic", "anthropic"),
    ("google-genai", "google.genai"),
    ("groq", "groq"),
    ("cohere", "cohere"),
    ("mistralai", "mistralai.client"),
    ("together", "together"),
    ("boto3", "boto3"),
    ("requests", "requests"),
    ("httpx", "httpx"),
    ("tenacity", "tenacity"),
    ("pydantic", "pydantic"),
    ("jsonschema", "jsonschema"),
    ("numpy", "numpy"),
    ("pandas", "pandas"),
    ("pillow", "PIL.Image"),
    ("python-docx", "docx"),
    ("docxtpl", "docxtpl"),
    ("python-pptx", "pptx"),
    ("reportlab", "reportlab.pdfgen.canvas"),
];

// proves W-044
#[tokio::test(flavor = "multi_thread")]
async fn coderunner_has_the_clients_of_models_and_the_makers_of_documents() {
    let code = format!(
        "import importlib, importlib.metadata\n\
         def version(package, module):\n    importlib.import_module(module)\n    \
         return importlib.metadata.version(package)\n\
         [version(*each) for each in {CODERUNNER:?}]"
    );
    let found = value("coderunner", &code).await;
    let lock = engine::Environments::open(&harness::data()).unwrap().find("coderunner").unwrap();
    for ((package, _), found) in CODERUNNER.iter().zip(found.as_array().unwrap()) {
        let pin = format!("\n{package}=={} ", found.as_str().unwrap());
        assert!(lock.lock().contains(&pin), "{pin}");
    }
}
