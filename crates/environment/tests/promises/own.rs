//! Environments of users: locked by the real index, saved completely or not at all, with errors
//! that name the line.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::world::{self, World};
use belljar_environment::{
    BuildError, BuildRequest, Environments, Name, Origin, PythonChoice, ResolutionFailure,
    SourceKind, UnlockedDefinition,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn name(text: &str) -> Name {
    Name::try_from(text.to_owned()).unwrap()
}

fn order(requirements: &str) -> BuildRequest {
    let draft =
        UnlockedDefinition::parse(SourceKind::Requirements, requirements, Some(&name("mine")))
            .unwrap();
    BuildRequest { draft, lock: None, python: None }
}

/// Builds and saves, as the command line does.
fn add(environments: &Environments, order: &BuildRequest) -> Result<Vec<String>, BuildError> {
    let prepared = environments.prepare(order, &mut |_| ())?;
    environments.save_definition(&prepared.recipe)?;
    let packages = prepared.built.packages.iter();
    Ok(packages.map(|package| format!("{} {}", package.name, package.version)).collect())
}

fn refusal(world: &World, requirements: &str) -> BuildError {
    let error = add(&world.environments(), &order(requirements)).unwrap_err();
    assert_eq!(world.names(), [""; 0], "nothing is left of {requirements:?}");
    assert!(world.environments().find("mine").is_err(), "nothing is kept of {requirements:?}");
    error
}

fn failure(error: &BuildError) -> (ResolutionFailure, Vec<usize>) {
    match error {
        BuildError::Lock { failure, lines, .. } => {
            (*failure, lines.iter().map(|line| line.number).collect())
        }
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_asked_for_is_locked_with_hashes_built_and_kept() {
    let world = World::new();
    let environments = world.environments();
    let packages = add(&environments, &order("six==1.16.0\nidna<3\n")).unwrap();
    assert_eq!(packages, ["idna 2.10", "six 1.16.0"]);

    let recipe = world.environments().find("mine").unwrap();
    assert_eq!(recipe.origin, Origin::Custom);
    let python = world::pythons()[0].version;
    let first = recipe.lock().lines().next().unwrap().to_owned();
    assert!(first.starts_with(&format!("# Locked for CPython {}.{} ", python.major, python.minor)));
    for pin in recipe.lock().split("==").skip(1) {
        assert!(pin.contains("--hash=sha256:"), "{pin}");
    }
    assert!(environments.built(&recipe, None).is_some());
    assert_eq!(environments.names().last().map(String::as_str), Some("mine"));
}

#[test]
fn the_name_of_a_built_in_environment_cannot_be_used() {
    let world = World::without_uv();
    let draft =
        UnlockedDefinition::parse(SourceKind::Requirements, "six", Some(&name("default"))).unwrap();
    let taken = BuildRequest { draft, lock: None, python: None };
    let error = add(&world.environments(), &taken).unwrap_err();
    assert!(matches!(error, BuildError::Shipped { .. }), "{error}");
}

#[test]
fn an_unknown_package_is_named_with_its_line() {
    let world = World::new();
    let error = refusal(&world, "six\n\nno-such-package-of-belljar\n");
    assert_eq!(failure(&error), (ResolutionFailure::Unknown, vec![3]));
    assert!(error.to_string().contains("line 3 (`no-such-package-of-belljar`)"), "{error}");
}

#[test]
fn an_unknown_version_is_named_with_its_line() {
    assert_eq!(
        failure(&refusal(&World::new(), "idna\nsix==99\n")),
        (ResolutionFailure::NoVersion, vec![2])
    );
}

#[test]
fn a_yanked_version_is_refused_with_the_reason() {
    let error = refusal(&World::new(), "attrs==21.1.0");
    assert_eq!(failure(&error), (ResolutionFailure::Yanked, vec![1]));
    assert!(error.to_string().contains("not importable on Python 3.4"), "{error}");
}

#[test]
fn nothing_is_built_from_source() {
    let error = refusal(&World::new(), "docopt==0.6.2");
    assert_eq!(failure(&error), (ResolutionFailure::NoWheel, vec![1]));
    assert!(error.to_string().contains("--wheels DIR"), "{error}");
}

#[test]
fn conflicting_packages_are_both_named() {
    let error = refusal(&World::new(), "requests==2.31.0\nsix\nidna==2.0\n");
    assert_eq!(failure(&error), (ResolutionFailure::Conflict, vec![1, 3]));
}

#[test]
fn a_version_of_python_that_is_not_there_is_said_with_the_way_to_get_it() {
    let world = World::without_uv();
    let python = Some(PythonChoice::Version("3.99".parse().unwrap()));
    let error = add(&world.environments(), &BuildRequest { python, ..order("") }).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("requires CPython 3.99") && text.contains("uv python install"), "{text}");
}

#[test]
fn a_python_can_be_chosen_by_its_version() {
    let world = World::without_uv();
    for python in world::pythons() {
        let version = format!("{}.{}", python.version.major, python.version.minor);
        let choice = PythonChoice::from(version);
        let prepared = world
            .environments()
            .prepare(&BuildRequest { python: Some(choice), ..order("") }, &mut |_| ())
            .unwrap();
        assert_eq!(prepared.built.python.version.minor, python.version.minor);
    }
}

#[test]
fn a_lock_is_only_used_with_the_python_it_was_made_for() {
    let world = World::without_uv();
    let oldest = world::pythons().pop().unwrap().version;
    let lock = format!("# Locked for CPython {}.{} by hand\n", oldest.major, oldest.minor);
    let prepared = world
        .environments()
        .prepare(&BuildRequest { lock: Some(lock), ..order("") }, &mut |_| ())
        .unwrap();
    assert_eq!(prepared.built.python.version.minor, oldest.minor);
}

#[test]
fn a_lock_that_was_edited_is_refused() {
    let world = World::new();
    let environments = world.environments();
    let lock = environments.lock_packages(&order("six==1.16.0").draft, None, &mut |_| ()).unwrap();
    let with = |lock: String| BuildRequest { lock: Some(lock), ..order("six==1.16.0") };

    let version = add(&environments, &with(lock.replace("1.16.0", "1.15.0"))).unwrap_err();
    assert!(version.to_string().contains("line 2 of the lock has six 1.15.0"), "{version}");
    let hashes = lock.replace("--hash=sha256:", "--hash=sha256:0000");
    let forged = add(&environments, &with(hashes)).unwrap_err();
    let expected = "line 2 of the lock has hashes that do not match the files of six 1.16.0";
    assert!(forged.to_string().contains(expected), "{forged}");
    let index = add(&environments, &with(format!("{lock}--index-url https://example.org\n")));
    assert!(index.unwrap_err().to_string().contains("is an option"));
    assert_eq!(world.names(), [""; 0]);

    assert_eq!(add(&environments, &with(lock)).unwrap(), ["six 1.16.0"]);
}

#[test]
fn a_lock_that_is_not_whole_or_has_more_than_is_needed_is_refused() {
    let world = World::new();
    let environments = world.environments();
    let required = "python-dateutil==2.9.0.post0";
    let lock = environments.lock_packages(&order(required).draft, None, &mut |_| ()).unwrap();
    let lock_error = |required: &str, lock: &str| {
        let order = BuildRequest { lock: Some(lock.to_owned()), ..order(required) };
        let error = add(&environments, &order).unwrap_err().to_string();
        assert_eq!(world.names(), [""; 0], "nothing is left of {lock:?}");
        error
    };
    let without_six = lock.split_once("\nsix==").unwrap().0;
    assert!(lock_error(required, without_six).contains("`six` is not in the lock"));
    let more = format!("{lock}idna==3.10 --hash=sha256:00\n");
    let line = more.lines().count();
    let message = lock_error(required, &more);
    assert!(
        message.contains(&format!("line {line} of the lock has idna, which no package")),
        "{message}"
    );
    // A common manual form: a file that is its own lock.
    let message = add(&environments, &order(without_six)).unwrap_err().to_string();
    assert!(message.contains("`six` is not in the lock"), "{message}");

    let hash = "--hash=sha256:00";
    let apart = format!(
        "requests==2.32.3 {hash}\nidna==2.0 {hash}\ncertifi==2024.8.30 {hash}\n\
                         urllib3==2.2.3 {hash}\ncharset-normalizer==3.3.2 {hash}\n"
    );
    let message = lock_error("requests", &apart);
    assert!(message.contains("line 2 (`idna==2.0`)"), "{message}");
    let message = lock_error("attrs", &format!("attrs==21.1.0 {hash}\n"));
    assert!(message.contains("this version was yanked"), "{message}");

    let whole = BuildRequest { lock: Some(lock), ..order(required) };
    assert_eq!(add(&environments, &whole).unwrap().len(), 2);
}

#[test]
fn a_comment_in_requirements_is_no_requirement() {
    let world = World::new();
    let error =
        refusal(&world, "# no-such-package-of-belljar is nice\nno-such-package-of-belljar\n");
    assert_eq!(failure(&error), (ResolutionFailure::Unknown, vec![2]));
    let error = refusal(&world, "six\nidna>=99999\n");
    assert_eq!(failure(&error), (ResolutionFailure::NoVersion, vec![2]));
}

#[test]
fn without_an_index_no_uv_is_downloaded() {
    let mut world = World::without_uv();
    world.machine.offline = true;
    let error = refusal(&world, "six");
    assert!(matches!(error, BuildError::UvUnavailable { .. }), "{error}");
    assert!(error.to_string().contains("--offline is set"), "{error}");
}

#[test]
fn a_python_that_is_too_old_for_any_sandbox_is_not_recommended() {
    let choice = Some("3.10".parse().unwrap());
    let order = BuildRequest { python: choice, ..order("six") };
    let error = add(&World::new().environments(), &order).unwrap_err().to_string();
    assert!(error.contains("3.10 is not supported") && !error.contains("uv python"), "{error}");
}

#[test]
fn what_was_prepared_and_does_not_start_leaves_nothing_and_not_what_the_name_stands_for() {
    let world = World::new();
    let environments = world.environments();
    let first = environments.prepare(&order("six==1.16.0"), &mut |_| ()).unwrap();
    drop(first.built);
    environments.discard_build(&first.recipe).unwrap();
    assert_eq!(world.names(), [""; 0]);
    add(&environments, &order("six==1.16.0")).unwrap();
    let (kept, again) = (world.names(), environments.prepare(&order("six==1.16.0"), &mut |_| ()));
    environments.discard_build(&again.unwrap().recipe).unwrap();
    assert_eq!(world.names(), kept);
}

#[test]
fn a_rebuild_that_fails_leaves_what_was_there() {
    let world = World::new();
    let environments = world.environments();
    add(&environments, &order("six==1.16.0")).unwrap();
    let before = (environments.stamp("mine"), world.names());
    add(&environments, &order("six==99")).unwrap_err();
    assert_eq!((environments.stamp("mine"), world.names()), before);
    assert_eq!(add(&environments, &order("six==1.17.0")).unwrap(), ["six 1.17.0"]);
    assert_ne!(environments.stamp("mine"), before.0);
}

/// A directory with one wheel of six, downloaded by uv.
fn wheels(world: &World) -> std::path::PathBuf {
    let wheels = world.data.path().join("wheels");
    let python = &world::pythons()[0].executable;
    let fetched = Command::new(python)
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "six==1.16.0", "--dest"])
        .arg(&wheels)
        .status()
        .unwrap();
    assert!(fetched.success());
    wheels
}

#[test]
fn a_directory_of_wheels_replaces_the_network() {
    let fetched = World::new();
    let wheels = wheels(&fetched);
    for offline in [true, false] {
        let mut world = World::new().without_network();
        world.machine.wheels = Some(wheels.clone());
        world.machine.offline = offline;
        assert_eq!(add(&world.environments(), &order("six")).unwrap(), ["six 1.16.0"]);
        let error = add(&world.environments(), &order("six\nidna\n")).unwrap_err();
        assert_eq!(failure(&error), (ResolutionFailure::Offline, vec![2]));
    }
    let mut without = World::new().without_network();
    without.machine.offline = true;
    assert_eq!(failure(&refusal(&without, "six")).0, ResolutionFailure::Offline);
}

fn grow_old(directory: &Path, age: Duration) {
    let record = directory.with_extension("json");
    fs::File::open(record).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn a_replaced_build_is_removed_when_it_is_unused() {
    let world = World::without_uv();
    let environments = world.environments();
    let built = |description: &str| {
        let text = format!("name = \"mine\"\ndescription = \"{description}\"");
        let draft = UnlockedDefinition::parse(SourceKind::Toml, &text, None).unwrap();
        let order = BuildRequest { draft, lock: None, python: None };
        let prepared = environments.prepare(&order, &mut |_| ()).unwrap();
        environments.save_definition(&prepared.recipe).unwrap();
        prepared.built
    };
    let old = built("old");
    let directory = old.directory.clone();
    let new = built("new").directory.clone();
    let collect = || environments.remove_unused(SystemTime::now()).unwrap();

    grow_old(&directory, 2 * DAY);
    assert_eq!(collect(), [""; 0], "it is in use");
    drop(old);
    assert_eq!(collect(), [""; 0], "its last use was just now");
    grow_old(&directory, 2 * DAY);
    assert_eq!(collect(), [directory.file_name().unwrap().to_str().unwrap()]);
    grow_old(&new, 400 * DAY);
    assert_eq!(collect(), [""; 0], "what a definition stands for stays");
    assert!(!directory.exists() && !directory.with_extension("json").exists() && new.exists());
    let links = world.names().into_iter().filter(|name| name.contains('@')).count();
    assert_eq!(links, 1, "{:?}", world.names());
}

/// A sandbox sees the directory of its environment, and can lock what it sees.
#[test]
fn a_sandbox_cannot_hold_the_lock_of_an_environment() {
    let world = World::without_uv();
    let directory = world.ensure(&world::bare()).unwrap().directory.clone();
    let inside = fs::File::open(&directory).unwrap();
    inside.try_lock().unwrap();
    let (events, built) = world.watch(&world::bare());
    assert_eq!((events, built.unwrap().directory.clone()), (vec![], directory.clone()));
    grow_old(&directory, 31 * DAY);
    assert_eq!(world.environments().remove_unused(SystemTime::now()).unwrap().len(), 1);
}

#[test]
fn a_built_in_environment_is_removed_after_a_month_and_rebuilt_on_use() {
    let world = World::without_uv();
    let directory = world.ensure(&world::bare()).unwrap().directory.clone();
    let collect = || world.environments().remove_unused(SystemTime::now()).unwrap().len();
    grow_old(&directory, 29 * DAY);
    assert_eq!(collect(), 0);
    grow_old(&directory, 31 * DAY);
    assert_eq!(collect(), 1);
    assert_eq!(world.names(), [""; 0]);
    assert_eq!(world.ensure(&world::bare()).unwrap().directory, directory);
}

#[test]
fn what_no_environment_has_used_for_long_is_removed_from_the_caches() {
    let world = World::new();
    let environments = world.environments();
    let cached = |what: &str| {
        let mut files = 0;
        world::visit_files(&world.data.path().join("cache").join(what), &mut |path, found| {
            let of_wheel =
                what == "bytecode" || path.ancestors().any(|it| it.ends_with("archive-v0"));
            files += usize::from(found.is_file() && of_wheel);
        });
        files
    };
    let collect_in =
        |days: u32| environments.remove_unused(SystemTime::now() + days * DAY).unwrap();
    add(&environments, &order("six==1.16.0")).unwrap();
    let (wheels, bytecode) = (cached("uv"), cached("bytecode"));
    assert!(wheels > 0 && bytecode > 0);
    collect_in(100);
    assert_eq!((cached("uv"), cached("bytecode")), (wheels, bytecode), "it is in use");
    environments.remove("mine").unwrap();
    collect_in(80);
    assert_eq!((cached("uv"), cached("bytecode")), (wheels, bytecode), "not for long enough");
    collect_in(100);
    assert_eq!((cached("uv"), cached("bytecode")), (0, 0));
    assert_eq!(add(&environments, &order("six==1.16.0")).unwrap(), ["six 1.16.0"]);
}

#[test]
fn what_killed_builders_left_is_collected() {
    let world = World::without_uv();
    let environments = world.environments();
    let directory = world.data.path().join("environments");
    for left in [".mine.building-1/bin", "mine-0123456789ab/bin"] {
        fs::create_dir_all(directory.join(left)).unwrap();
    }
    environments.remove_unused(SystemTime::now()).unwrap();
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn an_environment_that_is_removed_is_gone_with_its_definition() {
    let world = World::without_uv();
    let environments = world.environments();
    add(&environments, &order("")).unwrap();
    environments.remove("mine").unwrap();
    assert_eq!(world.names(), [""; 0]);
    let unknown = environments.remove("mine").unwrap_err().to_string();
    assert!(unknown.starts_with("environment `mine` not found; available: default,"), "{unknown}");
}

#[test]
fn one_whose_definition_cannot_be_read_any_more_can_be_removed() {
    let world = World::without_uv();
    let environments = world.environments();
    add(&environments, &order("")).unwrap();
    fs::write(world.data.path().join("definitions/mine.json"), "{").unwrap();
    assert!(matches!(environments.find("mine"), Err(BuildError::StoredDefinition { .. })));
    environments.remove("mine").unwrap();
    assert!(matches!(environments.find("mine"), Err(BuildError::Unknown { .. })));
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn a_lock_of_a_reader_does_not_count_as_a_build() {
    let world = World::without_uv();
    let environments = world.environments();
    let prepared = environments.prepare(&order(""), &mut |_| ()).unwrap();
    let looks = || environments.is_building(&prepared.recipe.definition.name);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let over = || stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        let another = scope.spawn(|| {
            while !over() {
                assert!(!looks());
            }
        });
        let seen = (0..20_000).any(|_| looks());
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(!seen && another.join().is_ok());
    });
    let lock = world.data.path().join("environments/.mine.lock");
    let builder = fs::File::open(lock).unwrap();
    builder.lock().unwrap();
    assert!(looks());
}

#[test]
fn one_that_is_in_use_stays_while_it_is_removed() {
    let world = World::without_uv();
    let environments = world.environments();
    let prepared = environments.prepare(&order(""), &mut |_| ()).unwrap();
    environments.save_definition(&prepared.recipe).unwrap();
    environments.remove("mine").unwrap();
    assert!(environments.find("mine").is_err());
    assert!(prepared.built.directory.join("pyvenv.cfg").exists());
}

#[test]
fn a_list_of_fifty_takes_less_than_fifty_milliseconds() {
    let world = World::without_uv().in_memory();
    let python = Some(PythonChoice::At(world::pythons().remove(0).executable));
    let environments = world.environments();
    for number in 0..50 {
        let text = format!("name = \"mine-{number}\"");
        let draft = UnlockedDefinition::parse(SourceKind::Toml, &text, None).unwrap();
        let prepared = environments
            .prepare(&BuildRequest { draft, lock: None, python: python.clone() }, &mut |_| ())
            .unwrap();
        environments.save_definition(&prepared.recipe).unwrap();
    }
    let quickest = (0..5).map(|_| {
        let started = std::time::Instant::now();
        let names = environments.names();
        let built = names
            .iter()
            .filter_map(|name| environments.built(&environments.find(name).unwrap(), None));
        assert_eq!(built.count(), 50);
        started.elapsed()
    });
    let quickest = quickest.min().unwrap();
    assert!(quickest < Duration::from_millis(50), "{quickest:?}");
}
