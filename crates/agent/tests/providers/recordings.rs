//! Responses of providers, recorded as scripts and replayed.

use super::*;
use agent::{ModelScript, ScriptTurn};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const SAID: &str = r#"
- say: |
    I load the table first.

    Then I add it up.
  calls:
    - name: run_python
      id: call_a
      arguments:
        code: |
          import pandas as pd

          table = pd.read_csv("sales.csv")
          print(table.sum())  # "quoted": yes
        seconds: 1.5
  tokens: {input: 100, output: 20}
- calls: [{name: run_python, id: call_b, arguments: '{"code": "cut'}]
- {say: "yes", stop: length}
- {say: "  - a list: of sorts\n\ttabs too \u0007"}
"#;

fn recordings(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).unwrap();
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[tokio::test]
async fn what_was_recorded_is_played_again_word_for_word() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("kept");
    let record = Some(kept.clone());
    let server = ModelServer::start(SAID);
    let models = Models::new(ModelSettings { record, ..settings(&server) }).unwrap();
    let model = models.choose(Some(EACH[0])).unwrap();
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(answer(&*model).await.unwrap());
    }
    let files = recordings(&kept);
    assert_eq!(files.len(), 1, "{files:?}");
    let mode = fs::metadata(&files[0]).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let default = Some(format!("script:{}", files[0].display()));
    let again = Models::new(ModelSettings { default, ..ModelSettings::default() }).unwrap();
    for _ in 0..2 {
        let model = again.choose(None).unwrap();
        for expected in &answers {
            assert_eq!(&answer(&*model).await.unwrap(), expected);
        }
        let over = answer(&*model).await.unwrap_err();
        assert!(over.to_string().contains("the model script has only"), "{over}");
    }
    let written = fs::read_to_string(&files[0]).unwrap();
    assert!(
        written.contains("code: |\n        import pandas as pd\n"),
        "code stays readable: {written}"
    );
}

#[tokio::test]
async fn each_run_has_a_recording_of_its_own_and_no_key_is_in_any() {
    let directory = tempfile::tempdir().unwrap();
    let record = Some(directory.path().to_owned());
    let server = ModelServer::start(&format!("[{{say: your key is {KEY}}}, {{say: hello}}]"));
    let models = Models::new(ModelSettings { record, ..settings(&server) }).unwrap();
    for _ in 0..2 {
        answer(&*models.choose(Some(EACH[0])).unwrap()).await.unwrap();
    }
    let _never_asked = models.choose(Some(EACH[0])).unwrap();
    let kept: Vec<ModelScript> =
        recordings(directory.path()).iter().map(|file| ModelScript::read(file).unwrap()).collect();
    let says = |script: &ModelScript| {
        script.turns().iter().map(|turn: &ScriptTurn| turn.say.clone()).collect()
    };
    let kept: Vec<Vec<String>> = kept.iter().map(says).collect();
    assert_eq!(kept, [["your key is [key]"], ["hello"]]);
}
