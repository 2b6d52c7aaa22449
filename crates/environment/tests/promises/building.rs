//! An environment is complete or absent, built once, and correct for the inside of a sandbox.

use crate::wait_blocking;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::world::{self, World, visit_files};
use belljar_environment::{
    BuildError, BuiltEnvironment, Definition, Environments, HostSettings, Mount, Progress,
    PythonChoice, PythonInstallation, SkipReason,
};

fn read(environment: &BuiltEnvironment, path: &str) -> String {
    fs::read_to_string(environment.directory.join(path)).unwrap()
}

fn at(path: &Path) -> PythonChoice {
    PythonChoice::At(path.to_owned())
}

fn site_packages(environment: &BuiltEnvironment) -> PathBuf {
    let version = environment.python.version;
    environment
        .directory
        .join(format!("lib/python{}.{}/site-packages", version.major, version.minor))
}

#[test]
fn bare_is_built_for_every_python_of_the_machine() {
    let world = World::without_uv();
    for python in world::pythons() {
        let environments = world.environments();
        let built = environments
            .ensure(&world::bare(), Some(&at(&python.executable)), &mut |_| ())
            .unwrap();
        assert_eq!(built.python, python);
        assert_eq!(built.packages, []);

        let moved = python.prefix != Path::new("/usr");
        let inside = if moved { Path::new("/opt/python") } else { Path::new("/usr") };
        let program = inside.join(python.executable.strip_prefix(&python.prefix).unwrap());
        assert_eq!(fs::read_link(built.directory.join("bin/python")).unwrap(), program);
        assert_eq!(
            read(&built, "pyvenv.cfg"),
            format!(
                "home = {}\ninclude-system-site-packages = false\nversion = {}\n",
                program.parent().unwrap().display(),
                python.version
            )
        );
        let pth = fs::read_to_string(site_packages(&built).join("belljar.pth")).unwrap();
        assert_eq!(pth, "/opt/belljar/site\n");

        let python_mount = Mount { host: python.prefix, inside: inside.into() };
        let own_mount = Mount { host: built.directory.clone(), inside: "/opt/env".into() };
        let mounts = if moved { vec![python_mount, own_mount] } else { vec![own_mount] };
        assert_eq!(built.mounts(), mounts);
    }
}

#[test]
fn a_locked_package_is_installed_with_its_program() {
    let world = World::new();
    let built = world.ensure(&world::small()).unwrap();
    let packages: Vec<_> = built
        .packages
        .iter()
        .map(|package| (package.name.as_str(), package.version.as_str()))
        .collect();
    assert_eq!(packages, [("tabulate", "0.9.0")]);
    assert_eq!(
        built.preload.iter().map(|module| module.as_str()).collect::<Vec<_>>(),
        ["tabulate"]
    );
    assert_eq!(read(&built, "bin/tabulate").lines().next(), Some("#!/opt/env/bin/python"));
}

#[test]
fn bytecode_is_used_without_a_check_and_names_paths_of_the_sandbox() {
    let world = World::new();
    let built = world.ensure(&world::small()).unwrap();
    let script = "import sys, pathlib, marshal\n\
         (pyc,) = pathlib.Path(sys.argv[1]).glob('__pycache__/__init__.*.pyc')\n\
         data = pyc.read_bytes()\n\
         print(int.from_bytes(data[4:8], 'little'), marshal.loads(data[16:]).co_filename)\n";
    let package = site_packages(&built).join("tabulate");
    let printed = Command::new(&built.python.executable)
        .args(["-I", "-c", script])
        .arg(package)
        .output()
        .unwrap();
    let version = built.python.version;
    // 1: hash-based, and not checked against the source.
    let expected = format!(
        "1 /opt/env/lib/python{}.{}/site-packages/tabulate/__init__.py\n",
        version.major, version.minor
    );
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), expected);
}

/// The bytecode files below, with their inode numbers.
fn bytecode(environment: &BuiltEnvironment) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    visit_files(&environment.directory, &mut |path, metadata| {
        if path.extension().is_some_and(|ending| ending == "pyc") {
            let place = path.strip_prefix(&environment.directory).unwrap();
            found.push((place.display().to_string(), metadata.ino()));
        }
    });
    found.sort();
    found
}

#[test]
fn what_two_environments_share_is_compiled_once() {
    let world = World::new();
    let small = world.ensure(&world::small()).unwrap();
    let other = world.ensure(&world::small_under_another_name()).unwrap();
    assert!(!bytecode(&small).is_empty());
    assert_eq!(bytecode(&small), bytecode(&other));
    assert_ne!(small.directory, other.directory);
}

/// A source with other content than the one whose bytecode is cached, although a package may claim
/// in its records that it is the same.
#[test]
fn bytecode_is_only_for_the_source_that_it_was_made_of() {
    let script = "cd \"$(dirname \"$0\")\"\n\
                  cp claim.py ../environments/.*.building-*/lib/python3.*/site-packages/";
    let world = World::with_fake_uv(script);
    let built = |definition: Definition, source: &str| {
        fs::write(world.data.path().join("bin/claim.py"), source).unwrap();
        let built = world.ensure(&definition).unwrap();
        bytecode(&built).into_iter().find(|(place, _)| place.contains("claim")).unwrap()
    };
    let (one, one_file) = built(world::small(), "VERSION = 1");
    let (two, two_file) = built(world::small_under_another_name(), "VERSION = 2");
    assert_eq!(one, two);
    assert_ne!(one_file, two_file);
}

#[test]
fn no_package_runs_when_python_starts() {
    let script = "cd \"$(dirname \"$0\")\"/../environments/.*.building-*/lib/python3.*/site-packages\n\
                  echo 'import evil' > evil.pth; echo evil:run > evil.start\n\
                  echo 'import os' > sitecustomize.py; echo 'x = 1' > innocent.py";
    let world = World::with_fake_uv(script);
    let built = world.ensure(&world::small()).unwrap();
    let packages = site_packages(&built);
    for gone in ["evil.pth", "evil.start", "sitecustomize.py"] {
        assert!(!packages.join(gone).exists(), "{gone}");
    }
    assert!(packages.join("innocent.py").exists() && packages.join("belljar.pth").exists());
}

#[test]
fn another_user_can_read_it_all_whatever_the_umask() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let world = World::new();
    let built = world.ensure(&world::small()).unwrap();
    visit_files(&built.directory, &mut |path, metadata| {
        let required = if metadata.is_dir() { 0o755 } else { 0o644 };
        let mode = metadata.permissions().mode();
        assert_eq!(mode & required, required, "{} has {mode:o}", path.display());
    });
    assert_eq!(built.directory.metadata().unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn no_file_of_an_environment_names_the_host() {
    let world = World::new();
    let built = world.ensure(&world::small()).unwrap();
    let secrets =
        [world.data.path(), &built.python.prefix].map(|path| path.to_str().unwrap().to_owned());
    visit_files(&built.directory, &mut |path, metadata| {
        let bytes = if metadata.is_file() { fs::read(path).unwrap() } else { Vec::new() };
        for secret in secrets.iter().filter(|secret| *secret != "/usr") {
            let contains = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!contains, "{} tells of {secret}", path.display());
        }
    });
}

#[test]
fn the_second_time_starts_no_process() {
    let world = World::without_uv();
    let first = world.ensure(&world::bare()).unwrap();

    // A host on which a search would find nothing.
    let mut empty = world.machine.clone();
    (empty.search_path, empty.pyenv_root, empty.uv_pythons) = (Vec::new(), None, None);
    let environments = Environments::open_on(world.data.path(), empty).unwrap();
    let mut events = Vec::new();
    let second =
        environments.ensure(&world::bare(), None, &mut |event| events.push(event)).unwrap();
    assert_eq!((&*second, events), (&*first, vec![]));

    let default = Definition::built_in("default").unwrap();
    let result = environments.ensure(&default, None, &mut |_| ());
    assert!(matches!(result, Err(BuildError::NoPython { skipped: 0, .. })));
}

#[test]
fn the_second_time_takes_less_than_a_millisecond() {
    let world = World::without_uv();
    let environments = world.environments();
    let definition = world::bare();
    environments.ensure(&definition, None, &mut |_| ()).unwrap();
    let quickest = (0..20).map(|_| {
        let started = Instant::now();
        environments.ensure(&definition, None, &mut |_| ()).unwrap();
        started.elapsed()
    });
    assert!(quickest.min().unwrap() < Duration::from_millis(1));
}

#[test]
fn two_builders_at_once_build_once() {
    let world = World::with_fake_uv("echo run >> \"$(dirname \"$0\")/../cache/uv/runs\"; sleep 1");
    let builders = [(); 2].map(|()| {
        let (data, machine) = (world.data.path().to_owned(), world.machine.clone());
        thread::spawn(move || {
            let mut waited = false;
            let built = Environments::open_on(&data, machine).unwrap().ensure(
                &world::small(),
                None,
                &mut |event| waited |= event == Progress::Waiting,
            );
            (built.unwrap(), waited)
        })
    });
    let [one, other] = builders.map(|builder| builder.join().unwrap());
    assert_eq!(*one.0, *other.0);
    assert!(one.1 != other.1, "one of the two is told to wait");
    assert_eq!(fs::read_to_string(world.data.path().join("cache/uv/runs")).unwrap(), "run\n");
}

#[test]
fn a_failed_build_leaves_nothing() {
    let world = World::with_fake_uv("echo 'error: it broke' >&2; exit 1");
    let error = world.ensure(&world::small()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "uv failed to install the packages of environment `small` (exit status: 1): it broke; \
         create its lock again, or use environment `bare` (`--env bare`, or `serve --environment \
         bare`)"
    );
    assert_eq!(world.names(), Vec::<String>::new());
}

#[test]
fn a_package_that_is_not_the_locked_one_is_refused() {
    let world = World::new();
    let error = world.ensure(&world::small_with_a_wrong_hash()).unwrap_err();
    let expected = "line 1 of the lock has hashes that do not match the files of tabulate 0.9.0";
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(world.names(), Vec::<String>::new());
}

/// Not a test: the process that [`what_a_killed_builder_left_is_removed`] kills.
#[test]
#[ignore = "run by another test"]
fn a_builder_to_be_killed() {
    let data = std::env::var_os("BELLJAR_TEST_DATA").unwrap();
    let environments = Environments::open_on(Path::new(&data), HostSettings::from_env()).unwrap();
    environments.ensure(&world::small(), None, &mut |_| ()).unwrap();
}

#[test]
fn what_a_killed_builder_left_is_removed() {
    let mut world =
        World::with_fake_uv("echo > \"$(dirname \"$0\")/../cache/uv/started\"; exec sleep 3");
    let bin = world.machine.search_path.remove(0);
    let mut builder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "building::a_builder_to_be_killed", "--ignored"])
        .env("BELLJAR_TEST_DATA", world.data.path())
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let started = world.data.path().join("cache/uv/started");
    wait_blocking::until("the builder has started", || started.exists());
    builder.kill().unwrap();
    builder.wait().unwrap();
    assert_eq!(world.names(), [format!(".small.building-{}", builder.id())]);

    world.machine.search_path.extend(World::new().machine.search_path.pop());
    let built = world.ensure(&world::small()).unwrap();
    let directory = format!("small-{}", built.digest);
    let names = world.names();
    assert_eq!(names[..2], [directory.clone(), format!("{directory}.json")]);
    assert!(names[2].starts_with("small@") && names.len() == 3, "{names:?}");
}

#[test]
fn a_directory_without_its_record_is_built_again() {
    let world = World::without_uv();
    let first = world.ensure(&world::bare()).unwrap();
    fs::remove_file(first.directory.with_extension("json")).unwrap();
    fs::write(first.directory.join("pyvenv.cfg"), "half").unwrap();
    let second = world.ensure(&world::bare()).unwrap();
    assert_eq!(second.directory, first.directory);
    assert!(read(&second, "pyvenv.cfg").starts_with("home = "));
}

#[test]
fn a_virtual_environment_stands_for_the_python_it_was_made_from() {
    let world = World::without_uv();
    let python = world::pythons().remove(0);
    let venv = world.data.path().join("venv");
    let made = Command::new(&python.executable)
        .args(["-I", "-m", "venv", "--copies", "--without-pip"])
        .arg(&venv)
        .status()
        .unwrap();
    assert!(made.success());
    let named = venv.join("bin/python");
    let built =
        world.environments().ensure(&world::bare(), Some(&at(&named)), &mut |_| ()).unwrap();
    assert_eq!(built.python, python);
}

#[test]
fn a_named_python_that_is_not_one_is_refused() {
    let world = World::without_uv();
    let python_error = |path: &str| {
        world
            .environments()
            .ensure(&world::bare(), Some(&at(Path::new(path))), &mut |_| ())
            .unwrap_err()
    };
    assert_eq!(
        python_error("/nowhere/python3").to_string(),
        "Python at /nowhere/python3 cannot be used: it cannot be started (entity not found); \
         select another with `--python PATH`"
    );
    let silent = python_error("/bin/true");
    assert!(
        matches!(&silent, BuildError::UnusablePython { reason: SkipReason::NoAnswer { .. }, .. }),
        "{silent}"
    );
}

#[test]
fn a_named_python_outside_the_range_is_refused() {
    let world = World::without_uv();
    let python = world::pythons().remove(0);
    let definition = Definition::parse("name = \"future\"\npython = \"3.99\"", "").unwrap();
    let error = world
        .environments()
        .ensure(&definition, Some(&at(&python.executable)), &mut |_| ())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "environment `future` requires CPython 3.99, and the one at {} is {}; select another \
             with `--python PATH`",
            python.executable.display(),
            python.version
        )
    );
}

/// Hides the Pythons of this version from a host, and returns the others.
fn without_python(world: &mut World, minor: u16) -> Vec<PythonInstallation> {
    let bin = world.data.path().join("pythons-of-the-host");
    fs::create_dir(&bin).unwrap();
    let mut others = world::pythons();
    others.retain(|python| python.version.minor != minor);
    for python in &others {
        let name = format!("python3.{}", python.version.minor);
        // Of two with the same version, the first is enough.
        let _ = std::os::unix::fs::symlink(&python.executable, bin.join(name));
    }
    let machine = &mut world.machine;
    machine.search_path.retain(|directory| directory.join("uv").exists());
    machine.search_path.push(bin);
    (machine.pyenv_root, machine.uv_pythons) = (None, None);
    others
}

/// `atlas` is for one version of Python, which many hosts do not have.
#[test]
fn a_machine_without_the_python_of_an_environment_and_offline_says_how_to_get_it() {
    let mut world = World::without_uv();
    let others = without_python(&mut world, 11);
    world.machine.offline = true;
    let error = world.ensure(&Definition::built_in("atlas").unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "environment `atlas` requires CPython 3.11, and none was found (skipped: {}; see \
             `belljar doctor`); install one, for example with `uv python install \"3.11\"`, or \
             select one with `--python PATH`",
            others.len()
        )
    );
    assert_eq!(world.names(), Vec::<String>::new());
}

/// An environment without packages for one version of Python.
fn for_python_3_11() -> Definition {
    Definition::parse("name = \"eleven\"\npython = \"3.11\"", "").unwrap()
}

// proves C-165
#[test]
fn uv_provides_the_python_that_an_environment_needs_and_the_machine_lacks() {
    let eleven = world::pythons().into_iter().find(|python| python.version.minor == 11).unwrap();
    let program = eleven.executable.display();
    // It stores a Python as uv does: a directory with bin/python3.
    let mut world = World::with_fake_uv(&format!(
        "case \"$*\" in *'python install 3.11'*) ;; *) echo \"error: $*\" >&2; exit 2;; esac\n\
         mkdir -p \"$UV_PYTHON_INSTALL_DIR/cpython-3.11/bin\" && \
         ln -s {program} \"$UV_PYTHON_INSTALL_DIR/cpython-3.11/bin/python3\""
    ));
    without_python(&mut world, 11);
    let (events, ended) = world.watch(&for_python_3_11());
    assert_eq!(ended.unwrap().python.version.minor, 11);
    let fetched = |event: &&Progress| matches!(event, Progress::FetchingPython { .. });
    assert_eq!(events.iter().filter(fetched).count(), 1, "{events:?}");
    // The twin: what is there is not fetched again.
    let other = Definition::parse("name = \"other\"\npython = \"3.11\"", "").unwrap();
    let (events, ended) = world.watch(&other);
    assert_eq!((ended.is_ok(), events.iter().filter(fetched).count()), (true, 0), "{events:?}");
}

// proves C-165
#[test]
fn a_python_that_uv_cannot_provide_is_named_with_what_to_install() {
    let mut world = World::with_fake_uv("echo 'error: Failed to fetch: no route' >&2; exit 2");
    without_python(&mut world, 11);
    let error = world.ensure(&for_python_3_11()).unwrap_err().to_string();
    for part in ["`eleven`", "CPython 3.11", "no route", "uv python install \"3.11\""] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(world.names(), Vec::<String>::new());
}
