use crate::harness;

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_runs_code() {
    let engine = engine::Engine::start(harness::config());
    let execution = harness::run(&engine, "print(6 * 7)").await;
    assert_eq!(harness::printed(&execution, types::Stream::Stdout), "42\n");
}
