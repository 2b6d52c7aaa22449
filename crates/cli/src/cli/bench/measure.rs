//! Takes the samples.

use super::super::CliError;
use super::baseline::{self, BaselineInterpreter};
use super::bubblewrap;
use super::report::{Figure, FigureTarget, format_ms};
use engine::{Code, Command, Engine, EntryPoint, NewSession, UnsandboxedPython};
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::{Event, Execution, OutputStream, SandboxId};

/// Consecutive samples of one kind: few enough that both kinds run under the same load, enough that
/// each has warm caches, as in normal use.
pub(super) const BLOCK: usize = 20;
/// Sandboxes that wait in the pool.
pub(super) const POOL: usize = 4;
const POOL_SETTLE_TIME: Duration = Duration::from_millis(12);
const BURST: usize = 100;
const CLIENTS: usize = 8;
const RATE_SECONDS: u64 = 4;
const MEMORY_SESSIONS: usize = 20;
const NATIVE_ROUNDS: usize = 7;
const GROUP_BY: &str = "import pandas as pd, numpy as np
t = pd.DataFrame({'k': np.arange(1000) % 7, 'v': np.arange(1000.0)})
print(t.groupby('k').v.mean().sum())";

pub(super) struct Bench {
    fresh: Arc<Engine>,
    pub(super) pooled: Arc<Engine>,
    pub(super) environment: String,
    pub(super) samples: usize,
    pub(super) outside: UnsandboxedPython,
    baseline: BaselineInterpreter,
}

/// Alternating samples of one figure and of the baseline.
#[derive(Debug, Default)]
struct Samples {
    figure: Vec<Duration>,
    baseline: Vec<Duration>,
}

impl Samples {
    fn p50(&self) -> f64 {
        percentile(&self.figure, 50).as_secs_f64() / percentile(&self.baseline, 50).as_secs_f64()
    }

    fn p99(&self) -> f64 {
        percentile(&self.figure, 99).as_secs_f64() / percentile(&self.baseline, 50).as_secs_f64()
    }

    fn raw(&self, percent: usize) -> String {
        let (figure, floor) = (percentile(&self.figure, percent), percentile(&self.baseline, 50));
        format!("{} against {}", format_ms(figure), format_ms(floor))
    }

    fn figures(&self, name: &'static str, most: f64) -> Figure {
        let reach = FigureTarget::AtMost(most);
        Figure { name, value: self.p50(), unit: "x floor", target: reach, raw: self.raw(50) }
    }
}

pub(super) fn percentile(samples: &[Duration], percent: usize) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or_default()
}

impl Bench {
    pub(super) async fn start(
        fresh: Arc<Engine>,
        pooled: Arc<Engine>,
        environment: String,
        samples: usize,
    ) -> Result<Self, CliError> {
        let outside = fresh.unsandboxed_python(&environment).await?;
        let floor = BaselineInterpreter::start(&outside)?;
        Ok(Self { fresh, pooled, environment, samples, outside, baseline: floor })
    }

    pub(super) async fn run(
        &mut self,
        report: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Vec<Figure>, CliError> {
        let mut figures = Vec::new();
        report("fresh");
        figures.extend(self.bench_fresh().await?);
        report("pooled");
        figures.push(self.bench_pooled().await?);
        report("exec");
        figures.push(self.exec().await?);
        report("ten_commands");
        figures.push(self.ten_commands().await?);
        report("burst_100");
        figures.extend(self.burst().await?);
        report("oneshot_rate");
        figures.push(self.oneshot_rate().await?);
        report("idle_mb and worked_mb");
        figures.extend(self.memory().await?);
        report("check");
        figures.push(self.check()?);
        report("tool_call");
        figures.push(self.tool_call().await?);
        figures.push(self.tool_call_live().await?);
        if self.has_package("numpy").await? {
            report("native");
            figures.extend(self.native().await?);
        }
        report("bubblewrap");
        figures.extend(self.bubblewrap().await?);
        Ok(figures)
    }

    async fn has_package(&self, name: &str) -> Result<bool, CliError> {
        let versions = self.fresh.prepare(&self.environment, |_| {}).await?;
        Ok(versions.packages.iter().any(|package| package.name == name))
    }

    pub(super) fn command(
        &self,
        session: Option<SandboxId>,
        code: &str,
    ) -> Result<Command, CliError> {
        let code = Code::new(code.into()).map_err(|error| CliError::usage(error.to_string()))?;
        Ok(Command { session, ..Command::new(&self.environment, EntryPoint::Cell(code)) })
    }

    pub(super) fn new_session(&self) -> NewSession {
        NewSession::new(&self.environment)
    }

    /// Takes a block of baseline samples before each block of a figure.
    fn sample_baseline(&mut self, turn: usize, samples: &mut Samples) -> Result<(), CliError> {
        if turn.is_multiple_of(BLOCK) {
            for _ in 0..BLOCK {
                samples.baseline.push(self.baseline.sample()?);
            }
        }
        Ok(())
    }

    async fn bench_fresh(&mut self) -> Result<Vec<Figure>, CliError> {
        let mut samples = Samples::default();
        for turn in 0..self.samples {
            self.sample_baseline(turn, &mut samples)?;
            let command = self.command(None, "print(1)")?;
            samples.figure.push(time_to_first_output(&self.fresh, command).await?);
        }
        let p99 = Figure {
            name: "fresh_p99",
            value: samples.p99(),
            unit: "x floor",
            target: FigureTarget::AtMost(4.0),
            raw: samples.raw(99),
        };
        Ok(vec![samples.figures("fresh", 2.0), p99])
    }

    async fn bench_pooled(&mut self) -> Result<Figure, CliError> {
        let mut samples = Samples::default();
        for turn in 0..self.samples {
            self.sample_baseline(turn, &mut samples)?;
            self.await_pool().await?;
            let command = self.command(None, "print(1)")?;
            samples.figure.push(time_to_first_output(&self.pooled, command).await?);
        }
        Ok(samples.figures("pooled", 0.2))
    }

    /// Waits until the pool is full and idle, so that the measured request finds a ready sandbox
    /// and does not share a core with the start of the next one.
    pub(super) async fn await_pool(&self) -> Result<(), CliError> {
        while self.pooled.ready_sandboxes(&self.environment).await? < POOL {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(POOL_SETTLE_TIME).await;
        Ok(())
    }

    async fn exec(&mut self) -> Result<Figure, CliError> {
        let session = self.fresh.open(self.new_session()).await?.id;
        let mut samples = Samples::default();
        run_to_end(&self.fresh, self.command(Some(session), "x = 0")?).await?;
        for turn in 0..self.samples {
            self.sample_baseline(turn, &mut samples)?;
            let command = self.command(Some(session), "x += 1\nprint(x)")?;
            let started = Instant::now();
            run_to_end(&self.fresh, command).await?;
            samples.figure.push(started.elapsed());
        }
        self.fresh.close(session).await?;
        Ok(samples.figures("exec", 0.08))
    }

    async fn ten_commands(&mut self) -> Result<Figure, CliError> {
        let mut samples = Samples::default();
        for turn in 0..self.samples {
            self.sample_baseline(turn, &mut samples)?;
            self.await_pool().await?;
            let started = Instant::now();
            let session = self.pooled.open(self.new_session()).await?.id;
            run_to_end(&self.pooled, self.command(Some(session), "x = [1]")?).await?;
            for _ in 0..9 {
                let command = self.command(Some(session), "x.append(x[-1] + len(x))")?;
                run_to_end(&self.pooled, command).await?;
            }
            self.pooled.close(session).await?;
            samples.figure.push(started.elapsed());
        }
        Ok(samples.figures("ten_commands", 1.0))
    }

    async fn burst(&mut self) -> Result<Vec<Figure>, CliError> {
        let mut samples = Samples::default();
        let mut responses = 0;
        for _ in 0..3 {
            for _ in 0..20 {
                samples.baseline.push(self.baseline.sample()?);
            }
            let started = Instant::now();
            let mut all = tokio::task::JoinSet::new();
            for _ in 0..BURST {
                let (engine, request) = (Arc::clone(&self.fresh), self.new_session());
                let mut command = self.command(None, "print(1)")?;
                all.spawn(async move {
                    let session = engine.open(request).await?.id;
                    command.session = Some(session);
                    let execution = run_to_end(&engine, command).await?;
                    Ok::<_, CliError>((session, execution))
                });
            }
            let mut sessions = Vec::new();
            while let Some(one) = all.join_next().await {
                if let Ok(Ok((session, execution))) = one {
                    responses += usize::from(printed_output(&execution) == "1\n");
                    sessions.push(session);
                }
            }
            samples.figure.push(started.elapsed());
            for session in sessions {
                self.fresh.close(session).await?;
            }
        }
        let burst = Figure {
            name: "burst_100",
            value: samples.p50() / BURST as f64,
            unit: "x 100 floor",
            target: FigureTarget::AtMost(1.4),
            raw: samples.raw(50),
        };
        let answers = Figure {
            name: "burst_100_answers",
            value: responses as f64 / 3.0,
            unit: "of 100",
            target: FigureTarget::AtLeast(BURST as f64),
            raw: format!("{responses} in 3 bursts"),
        };
        Ok(vec![burst, answers])
    }

    async fn oneshot_rate(&mut self) -> Result<Figure, CliError> {
        let mut floors = Vec::new();
        for _ in 0..20 {
            floors.push(self.baseline.sample()?);
        }
        let until = Instant::now() + Duration::from_secs(RATE_SECONDS);
        let started = Instant::now();
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let (engine, command) = (Arc::clone(&self.fresh), self.command(None, "print(1)")?);
            clients.spawn(async move {
                let mut done = 0u32;
                while Instant::now() < until {
                    run_to_end(&engine, command.clone()).await?;
                    done += 1;
                }
                Ok::<_, CliError>(done)
            });
        }
        let mut done = 0;
        while let Some(client) = clients.join_next().await {
            done += client.map_err(|error| CliError::usage(error.to_string()))??;
        }
        let rate = f64::from(done) / started.elapsed().as_secs_f64();
        for _ in 0..20 {
            floors.push(self.baseline.sample()?);
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let most = cores / percentile(&floors, 50).as_secs_f64();
        Ok(Figure {
            name: "oneshot_rate",
            value: rate / most,
            unit: "of cores/floor",
            target: FigureTarget::AtLeast(0.6),
            raw: format!("{rate:.0} a second, against {most:.0} ({cores} cores)"),
        })
    }

    async fn memory(&mut self) -> Result<Vec<Figure>, CliError> {
        let mut sessions = Vec::new();
        for _ in 0..MEMORY_SESSIONS {
            sessions.push(self.fresh.open(self.new_session()).await?.id);
        }
        let figure = |name, value, most| Figure {
            name,
            value,
            unit: "MB",
            target: FigureTarget::AtMost(most),
            raw: format!("mean of {MEMORY_SESSIONS} sessions, private pages and page tables"),
        };
        let mut figures = vec![figure("idle_mb", self.measure_memory(&sessions).await?, 3.0)];
        if self.has_package("pandas").await? {
            for session in &sessions {
                run_to_end(&self.fresh, self.command(Some(*session), GROUP_BY)?).await?;
            }
            figures.push(figure("worked_mb", self.measure_memory(&sessions).await?, 8.0));
        }
        for session in sessions {
            self.fresh.close(session).await?;
        }
        Ok(figures)
    }

    async fn measure_memory(&self, sessions: &[SandboxId]) -> Result<f64, CliError> {
        let mut bytes = 0;
        for session in sessions {
            bytes += self.fresh.memory_of(*session).await?;
        }
        Ok(bytes as f64 / sessions.len() as f64 / 1e6)
    }

    /// Takes the best of several rounds on each side: other load can only make a round slower.
    async fn native(&mut self) -> Result<Vec<Figure>, CliError> {
        let (mut inside, mut outside) = ([u64::MAX; 2], [u64::MAX; 2]);
        for _ in 0..NATIVE_ROUNDS {
            let (python, numpy) = baseline::run_native(&self.outside)?;
            outside = [outside[0].min(python), outside[1].min(numpy)];
            let execution = run_to_end(&self.fresh, self.command(None, baseline::NATIVE)?).await?;
            let (python, numpy) = baseline::parse_two_numbers(&printed_output(&execution))?;
            inside = [inside[0].min(python), inside[1].min(numpy)];
        }
        let figure = |name, index: usize| Figure {
            name,
            value: outside[index] as f64 / inside[index] as f64,
            unit: "of outside",
            target: FigureTarget::AtLeast(0.97),
            raw: format!("{:.2} ms inside", inside[index] as f64 / 1e6),
        };
        Ok(vec![figure("native_python", 0), figure("native_numpy", 1)])
    }

    async fn bubblewrap(&mut self) -> Result<Vec<Figure>, CliError> {
        let mut figures = Vec::new();
        let mut work = vec![("bubblewrap_print", "print(1)")];
        if self.has_package("pandas").await? {
            work.push(("bubblewrap_pandas", GROUP_BY));
        }
        for (name, code) in work {
            let times: Vec<Duration> =
                (0..5).filter_map(|_| bubblewrap::run(&self.outside, code)).collect();
            if times.len() == 5
                && let Ok(floor) = self.baseline.sample()
            {
                figures.push(Figure {
                    name,
                    value: percentile(&times, 50).as_secs_f64() / floor.as_secs_f64(),
                    unit: "x floor",
                    target: FigureTarget::Unbounded,
                    raw: format_ms(percentile(&times, 50)),
                });
            }
        }
        Ok(figures)
    }
}

pub(super) async fn run_to_end(
    engine: &Arc<Engine>,
    command: Command,
) -> Result<Execution, CliError> {
    let execution = engine.run(command, &mut |_| {}).await?.execution;
    match &execution.error {
        None => Ok(execution),
        Some(error) => Err(CliError::from(error.clone())),
    }
}

/// The time from the request to its first byte of output.
async fn time_to_first_output(
    engine: &Arc<Engine>,
    command: Command,
) -> Result<Duration, CliError> {
    let started = Instant::now();
    let mut first = None;
    let ran = engine
        .run(command, &mut |event| {
            if matches!(event, Event::Output(_)) {
                first.get_or_insert_with(|| started.elapsed());
            }
        })
        .await?;
    match (first, ran.execution.error) {
        (Some(first), None) => Ok(first),
        (_, Some(error)) => Err(CliError::from(error)),
        (None, None) => Err(CliError::usage("print(1) printed nothing")),
    }
}

fn printed_output(execution: &Execution) -> String {
    let pieces = execution.output.iter().filter(|piece| piece.stream == OutputStream::Stdout);
    pieces.map(|piece| piece.text.as_str()).collect()
}
