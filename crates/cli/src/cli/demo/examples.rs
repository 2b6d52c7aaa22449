//! The examples of `examples/`, embedded in the program: agents, and a request to `code_execution`.

/// File names and contents.
type ExampleFiles = &'static [(&'static str, &'static [u8])];

#[derive(Debug)]
pub(super) struct Example {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Message to the agent, or request to `code_execution`.
    pub(super) message: &'static str,
    /// Specification of the agent; without one, `code_execution` carries out the request.
    pub(super) specification: Option<&'static str>,
    /// Responses of the scripted model, turn by turn.
    pub(super) script: &'static str,
    /// Files that are attached to the message.
    pub(super) data: ExampleFiles,
    /// Tools that are attached to it, in JSON.
    pub(super) tools: &'static [&'static str],
}

macro_rules! text {
    ($example:literal, $file:literal) => {
        include_str!(concat!("../../../../../examples/", $example, "/", $file))
    };
}

macro_rules! files {
    ($example:literal, $($file:literal),*) => {
        &[$(($file, include_bytes!(concat!("../../../../../examples/", $example, "/", $file)))),*]
    };
}

pub(super) const EXAMPLES: [Example; 6] = [
    Example {
        name: "sales-analyst",
        about: "plans, computes, corrects an error, draws a chart",
        message: "How did we do from January to June, by region and product? I would like a chart.",
        specification: Some(text!("sales-analyst", "agent.yaml")),
        script: text!("sales-analyst", "script.yaml"),
        data: files!("sales-analyst", "sales.csv"),
        tools: &[],
    },
    Example {
        name: "csv-cleaner",
        about: "cleans a table without inventing values",
        message: "Clean this table of customers.",
        specification: Some(text!("csv-cleaner", "agent.yaml")),
        script: text!("csv-cleaner", "script.yaml"),
        data: files!("csv-cleaner", "customers.csv"),
        tools: &[],
    },
    Example {
        name: "unit-converter",
        about: "uses a tool with a handle() function",
        message: "How many kilometres are 26.2 miles, how hot is 350 °F, and how heavy are 3 stone?",
        specification: Some(text!("unit-converter", "agent.yaml")),
        script: text!("unit-converter", "script.yaml"),
        data: &[],
        tools: &[],
    },
    Example {
        name: "media-probe",
        about: "uses a tool with a run() function",
        message: "What are tone.wav, cover.png and notes.txt?",
        specification: Some(text!("media-probe", "agent.yaml")),
        script: text!("media-probe", "script.yaml"),
        data: files!("media-probe", "tone.wav", "cover.png"),
        tools: &[text!("media-probe", "media_probe.json")],
    },
    Example {
        name: "chart-maker",
        about: "reads a skill and draws a chart",
        message: "Draw the temperatures of the year.",
        specification: Some(text!("chart-maker", "agent.yaml")),
        script: text!("chart-maker", "script.yaml"),
        data: files!("chart-maker", "temperatures.csv"),
        tools: &[],
    },
    Example {
        name: "code-execution",
        about: "carries out a request with code_execution alone",
        message: "Analyze the attached sales report. Calculate the total revenue per region and generate a bar chart visualizing it.",
        specification: None,
        script: text!("code-execution", "script.yaml"),
        data: files!("code-execution", "sales_report.csv"),
        tools: &[],
    },
];
