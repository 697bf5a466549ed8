//! Which package `mooncake` a Python imports, and whether two distributions own it at once.
//!
//! Ours and the peer's both install the folder `mooncake`. In one environment they overwrite each other's files, and taking one
//! away takes files of the other along; pip says nothing to either.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;
use serde_json::json;
use yb_env::Clock;

use super::report::Check;

/// The distribution of this project.
const OURS: &str = "yuebing";
/// What the names of the peer's distributions begin with.
const PEER: &str = "mooncake-transfer-engine";
/// The folder that both install.
const PACKAGE: &str = "mooncake/";
/// The oldest Python that our package is built for.
const OLDEST: (u32, u32) = (3, 10);
/// What a Python may take to say where it looks for packages.
const PATIENCE: Duration = Duration::from_secs(5);
/// Its answer is small.
const MOST_BYTES: usize = 1 << 20;
const QUESTION: &str = "import sys, json; print(json.dumps({'version': list(sys.version_info[:3]), 'path': sys.path}))";

/// Where a Python looks for packages.
#[derive(Debug, Deserialize)]
struct Place {
    /// As `sys.version_info` has it; empty for a folder without a Python.
    version: Vec<u32>,
    /// As `sys.path` has it.
    path: Vec<PathBuf>,
}

/// Looks at the Pythons that were asked for, else at the one that a shell here would start.
pub fn check(asked: &[PathBuf]) -> Vec<Check> {
    let found: Vec<PathBuf> = if asked.is_empty() { usual().into_iter().collect() } else { asked.to_vec() };
    if found.is_empty() {
        return vec![Check::ok("python", "no python3 here; the commands need none")];
    }
    found.iter().flat_map(|path| of(path)).collect()
}

/// The environment that is active, else that whose package this program is of, else the first `python3` of the search path.
fn usual() -> Option<PathBuf> {
    let active = std::env::var_os("VIRTUAL_ENV").filter(|path| !path.is_empty());
    if let Some(python) = active.and_then(|home| interpreter_in(Path::new(&home))) {
        return Some(python);
    }
    if let Some(python) = std::env::current_exe().ok().and_then(|program| interpreter_of(&program)) {
        return Some(python);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("python3")).find(|file| file.is_file())
}

/// The interpreter of the environment in whose package a program lies: `ENV/lib/pythonX/site-packages/mooncake/bin/yuebing`.
fn interpreter_of(program: &Path) -> Option<PathBuf> {
    let packages = program.parent()?.parent().filter(|package| package.ends_with("mooncake"))?.parent()?;
    interpreter_in(packages.ancestors().nth(3)?)
}

fn interpreter_in(home: &Path) -> Option<PathBuf> {
    ["bin/python3", "bin/python"].iter().map(|name| home.join(name)).find(|file| file.is_file())
}

/// One Python, environment, or folder of packages.
fn of(path: &Path) -> Vec<Check> {
    let interpreter = if path.is_dir() { interpreter_in(path) } else { Some(path.to_owned()) };
    let place = match &interpreter {
        Some(python) => ask(python),
        None => Ok(Place { version: Vec::new(), path: vec![path.to_owned()] }),
    };
    match place {
        Ok(place) => {
            let shown = interpreter.as_deref().unwrap_or(path);
            vec![version(shown, &place), packages(shown, &place)].into_iter().flatten().collect()
        }
        Err(error) => {
            let hint = "name a Python, or the folder of an environment, with --python";
            vec![Check::fail("python", format!("{}: {error}", path.display()), hint)]
        }
    }
}

/// Starts the interpreter; ends it if it does not answer.
fn ask(python: &Path) -> io::Result<Place> {
    let mut command = Command::new(python);
    command.args(["-c", QUESTION]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let answer = child.stdout.take().map_or_else(|| Ok(Vec::new()), |pipe| read_in_time(pipe, PATIENCE));
    if answer.is_err() {
        child.kill()?;
    }
    child.wait()?;
    serde_json::from_slice(&answer?).map_err(|_| io::Error::other("this is no Python 3 that works"))
}

fn read_in_time(mut pipe: impl Read + std::os::fd::AsFd, patience: Duration) -> io::Result<Vec<u8>> {
    let clock = Clock::real();
    let until = clock.now() + patience;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let left = Timespec::try_from(until.since(clock.now())).map_err(io::Error::other)?;
        let ready = poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&left))?;
        if ready == 0 || answer.len() > MOST_BYTES {
            return Err(io::Error::other(format!("it does not answer within {} s", patience.as_secs())));
        }
        match pipe.read(&mut piece)? {
            0 => return Ok(answer),
            count => answer.extend_from_slice(piece.get(..count).unwrap_or_default()),
        }
    }
}

fn version(shown: &Path, place: &Place) -> Option<Check> {
    let text = place.version.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
    let [major, minor, ..] = place.version[..] else { return None };
    let told = format!("{text} at {}", shown.display());
    let check = match (major, minor) < OLDEST {
        true => Check::warn(
            "python",
            format!("{told}: our package needs {}.{}", OLDEST.0, OLDEST.1),
            "make an environment with a newer Python",
        ),
        false => Check::ok("python", told),
    };
    Some(check.with("version", text).with("path", shown.display().to_string()))
}

/// A distribution that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Distribution {
    name: String,
    version: String,
    /// The folder of packages.
    place: PathBuf,
    /// Its files in the folder `mooncake`, with their sizes.
    files: BTreeMap<String, u64>,
}

impl Distribution {
    fn is_ours(&self) -> bool {
        self.name == OURS
    }

    fn told(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    /// Files that are gone, or are somebody else's now.
    fn lost(&self) -> Vec<&str> {
        let same = |(file, size): &(&String, &u64)| {
            fs::metadata(self.place.join(file.as_str())).is_ok_and(|found| found.len() == **size)
        };
        self.files.iter().filter(|file| !same(file)).map(|(file, _)| file.as_str()).collect()
    }
}

fn packages(shown: &Path, place: &Place) -> Option<Check> {
    let installed: Vec<Distribution> = place.path.iter().flat_map(|folder| distributions(folder)).collect();
    Some(judge(shown, &installed).with(
        "distributions",
        json!(installed.iter().map(|one| json!({"name": one.name, "version": one.version, "place": one.place, "files": one.files.len()})).collect::<Vec<_>>()),
    ))
}

/// Those of the two projects in one folder of packages.
fn distributions(folder: &Path) -> Vec<Distribution> {
    let Ok(list) = fs::read_dir(folder) else { return Vec::new() };
    let homes = list.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<Distribution> = homes
        .filter(|home| home.extension().is_some_and(|e| e == "dist-info"))
        .filter_map(|home| read(folder, &home))
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn read(folder: &Path, home: &Path) -> Option<Distribution> {
    let stem = home.file_stem()?.to_str()?.to_lowercase();
    // Cheap before the files are read: there may be hundreds of distributions.
    if !stem.starts_with(OURS) && !stem.replace('_', "-").starts_with(PEER) {
        return None;
    }
    let metadata = fs::read_to_string(home.join("METADATA")).ok()?;
    let field =
        |name: &str| metadata.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim().to_owned());
    let name = field("Name:")?.to_lowercase().replace(['_', '.'], "-");
    if name != OURS && !name.starts_with(PEER) {
        return None;
    }
    let record = fs::read_to_string(home.join("RECORD")).unwrap_or_default();
    Some(Distribution { name, version: field("Version:")?, place: folder.to_owned(), files: files(&record) })
}

/// The package's files in a record of `path,hash,size` lines. What pip compiled has no size and is nobody's concern.
fn files(record: &str) -> BTreeMap<String, u64> {
    let rows = record.lines().filter_map(|line| {
        let mut parts = line.rsplitn(3, ',');
        let size = parts.next()?.parse().ok()?;
        let path = parts.nth(1)?.trim_matches('"');
        path.starts_with(PACKAGE).then(|| (path.to_owned(), size))
    });
    rows.collect()
}

const ID: &str = "python-packages";

fn judge(shown: &Path, installed: &[Distribution]) -> Check {
    let owners: Vec<&Distribution> = installed.iter().filter(|one| !one.files.is_empty()).collect();
    let ours = owners.iter().find(|one| one.is_ours());
    let theirs: Vec<&&Distribution> = owners.iter().filter(|one| !one.is_ours()).collect();
    match (ours, theirs.as_slice()) {
        (None, []) => Check::ok(ID, "no package mooncake here; the commands need none"),
        (None, [one]) => {
            Check::ok(ID, format!("mooncake is the peer's, {}; it works with our master and nodes", one.told()))
        }
        (Some(ours), []) => alone(shown, ours, installed),
        _ => clash(shown, &owners),
    }
}

/// Ours, and no other.
fn alone(shown: &Path, ours: &Distribution, installed: &[Distribution]) -> Check {
    let lost = ours.lost();
    if let Some(first) = lost.first() {
        return Check::fail(
            ID,
            format!(
                "{} of {} files of {} are missing or not its own, for example {first}: another distribution with the \
                 folder mooncake was here",
                lost.len(),
                ours.files.len(),
                ours.told()
            ),
            format!(
                "{} -m pip install --force-reinstall --no-deps --no-index --find-links FOLDER_OF_THE_WHEEL yuebing",
                shown.display()
            ),
        );
    }
    let stands_in = match installed.iter().find(|one| one.name == PEER) {
        Some(one) => format!("; {} without files stands for it", one.told()),
        None => String::new(),
    };
    let told = format!("mooncake is {}{stands_in}", ours.told());
    match ours.version == env!("CARGO_PKG_VERSION") {
        true => Check::ok(ID, told),
        false => Check::warn(
            ID,
            format!("{told}, but this program is {}", env!("CARGO_PKG_VERSION")),
            "start the program that the package brings: both come from one build then",
        ),
    }
}

/// More than one owner of the folder.
fn clash(shown: &Path, owners: &[&Distribution]) -> Check {
    let names = owners.iter().map(|one| one.told()).collect::<Vec<_>>().join(" and ");
    let together = owners.windows(2).all(|pair| matches!(pair, [a, b] if a.place == b.place));
    let explained = if together {
        let place = owners.first().map(|one| one.place.display().to_string()).unwrap_or_default();
        let lost = owners.iter().filter(|one| one.is_ours()).map(|one| one.lost().len()).sum::<usize>();
        let winner = owners
            .first()
            .and_then(|one| imported(&one.place.join("mooncake")))
            .and_then(|file| owners.iter().find(|one| one.files.contains_key(&file)).map(|one| (file, one.told())));
        let winner = winner.map(|(file, name)| format!("; `import mooncake.store` takes {file} of {name}"));
        format!(
            "both own the folder mooncake in {place}: {lost} files of ours are replaced{}; an uninstall of either takes \
             files of the other along",
            winner.unwrap_or_default()
        )
    } else {
        let places = owners.iter().map(|one| format!("{} in {}", one.name, one.place.display()));
        format!(
            "{}: the first on the path is imported, and what it lacks comes from the other",
            places.collect::<Vec<_>>().join(", ")
        )
    };
    let names_only = owners.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(" ");
    let python = shown.display();
    Check::fail(
        ID,
        format!("{names} are both installed: {explained}"),
        format!(
            "{python} -m pip uninstall -y {names_only}, then install the one that is wanted; where a package requires \
                 {PEER}, the wheel of that name without files (make wheels) satisfies it"
        ),
    )
}

/// The file that Python takes for `mooncake.store`: a folder before an extension before source.
fn imported(package: &Path) -> Option<String> {
    let folder = package.join("store/__init__.py").is_file().then(|| "mooncake/store/__init__.py".to_owned());
    let extension = || {
        let list = fs::read_dir(package).ok()?;
        let mut names = list.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.find(|name| name.starts_with("store.") && name.ends_with(".so")).map(|name| format!("{PACKAGE}{name}"))
    };
    let source = || package.join("store.py").is_file().then(|| "mooncake/store.py".to_owned());
    folder.or_else(extension).or_else(source)
}

#[cfg(test)]
mod tests {
    use super::super::report::Level;
    use super::*;

    /// Installs a distribution by hand.
    fn install(folder: &Path, name: &str, version: &str, files: &[(&str, &str)]) {
        let home = folder.join(format!("{}-{version}.dist-info", name.replace('-', "_")));
        fs::create_dir_all(&home).unwrap();
        fs::write(home.join("METADATA"), format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")).unwrap();
        let mut record = format!("{}/METADATA,,\n", home.file_name().unwrap().to_str().unwrap());
        for (file, text) in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            record.push_str(&format!("{file},sha256=x,{}\n{file}c,,\n", text.len()));
        }
        fs::write(home.join("RECORD"), record).unwrap();
    }

    fn found(folder: &Path) -> Check {
        of(folder).pop().unwrap()
    }

    #[test]
    fn both_in_one_environment_are_found_and_explained() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert_eq!(found(folder).level, Level::Ok);
        let version = env!("CARGO_PKG_VERSION");
        install(folder, OURS, version, &[("mooncake/__init__.py", "ours"), ("mooncake/store.py", "ours")]);
        assert_eq!(found(folder).text, format!("mooncake is yuebing {version}"));
        // The wheel without files is no clash.
        install(folder, PEER, "0.3.14", &[]);
        let check = found(folder);
        assert!(check.level == Level::Ok && check.text.ends_with("without files stands for it"), "{check:?}");
        let theirs = [("mooncake/__init__.py", "theirs"), ("mooncake/store.so", "theirs")];
        install(folder, "mooncake-transfer-engine-non-cuda", "0.3.13.post1", &theirs);
        let check = found(folder);
        assert_eq!(check.level, Level::Fail, "{check:?}");
        for part in ["1 files of ours are replaced", "takes mooncake/store.so of mooncake-transfer-engine-non-cuda"] {
            assert!(check.text.contains(part), "{part}: {}", check.text);
        }
        assert!(check.hint.as_ref().unwrap().contains("uninstall -y mooncake-transfer-engine-non-cuda yuebing"));
        // pip takes the peer's files away, shared ones too.
        fs::remove_dir_all(folder.join("mooncake_transfer_engine_non_cuda-0.3.13.post1.dist-info")).unwrap();
        fs::remove_file(folder.join("mooncake/__init__.py")).unwrap();
        let check = found(folder);
        assert!(check.level == Level::Fail && check.text.contains("1 of 2 files"), "{check:?}");
        assert!(check.hint.unwrap().contains("--force-reinstall"));
    }

    #[test]
    fn two_folders_on_one_path_clash_too() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        install(folders[0].path(), OURS, "0.0.1", &[("mooncake/store.py", "ours")]);
        install(folders[1].path(), "mooncake-transfer-engine", "0.3.13", &[("mooncake/store.so", "theirs")]);
        let path = folders.iter().map(|folder| folder.path().to_owned()).collect();
        let check = packages(Path::new("p"), &Place { version: vec![3, 12, 1], path }).unwrap();
        assert!(check.level == Level::Fail && check.text.contains("the first on the path"), "{check:?}");
        assert_eq!(found(folders[0].path()).level, Level::Warn, "another version than the program's");
        assert_eq!(found(folders[1].path()).level, Level::Ok, "the peer's alone is no fault");
    }

    #[test]
    fn what_is_no_python_is_said() {
        let check = of(Path::new("/bin/true")).pop().unwrap();
        assert!(check.level == Level::Fail && check.text.contains("no Python"), "{check:?}");
        assert_eq!(of(Path::new("/no/such")).pop().unwrap().level, Level::Fail);
        let old = Place { version: vec![3, 9, 2], path: Vec::new() };
        assert_eq!(version(Path::new("p"), &old).unwrap().level, Level::Warn);
    }
}
