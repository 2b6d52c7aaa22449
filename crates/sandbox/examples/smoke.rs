use belljar_sandbox::*;
use std::path::PathBuf;
use types::*;
fn main() {
    if std::env::args().nth(1).as_deref() == Some(WARDEN_ARGUMENT) {
        std::process::exit(jail::warden::main());
    }
    let code = std::env::args().nth(1).unwrap();
    let warm = std::env::var("WARM").is_ok();
    let envdir = std::env::var("ENVDIR").unwrap();
    let rt = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    rt.block_on(async move {
        let t = std::time::Instant::now();
        let config = NurseryConfig {
            helper: std::env::current_exe().unwrap(),
            runtime: Runtime::install(&PathBuf::from("/tmp/bjdata"), &Kernel::Embedded).unwrap(),
            view: View {
                binds: vec![
                    ("/root/.pyenv/versions/3.13.0".into(), "/opt/python".into()),
                    (envdir.into(), "/opt/env".into()),
                ],
                interpreter: "/opt/env/bin/python".into(),
                variables: vec![("LD_LIBRARY_PATH".into(), "/opt/python/lib".into())],
                preload: vec!["numpy".into(), "pandas".into(), "matplotlib.pyplot".into()],
            },
            warmth: if warm { Warmth::Preloaded } else { Warmth::Bare },
            without: vec![],
            jails_ready: 4,
        };
        let n = match Nursery::start(config).await {
            Ok(n) => n,
            Err(e) => {
                println!("start: {e}");
                return;
            }
        };
        println!("nursery {:?} cg {:?}", t.elapsed(), n.cgroups_missing());
        for i in 0..3 {
            let t = std::time::Instant::now();
            let mut s = match n.birth(&Limits::DEFAULT).await {
                Ok(s) => s,
                Err(e) => {
                    println!("birth: {e}");
                    return;
                }
            };
            println!("birth {:?}", t.elapsed());
            let t = std::time::Instant::now();
            let mut sink = |e: Event| println!("{e:?}");
            let e = s
                .run(
                    &Cell { code: &code, name: "<cell 1>", show_last: true, argv: None },
                    &Limits::DEFAULT,
                    &mut sink,
                )
                .await;
            println!("{i} {:?} {e:?}", t.elapsed());
            println!("{:?}", s.changed_files());
            s.end().await;
        }
    });
}
