//! Encryption of values, and attacks by a principal with write access to the records.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use belljar_vault::{KeyFileError, Keyring, Plaintext, RotationError, Vault, VaultError};
use std::collections::{BTreeSet, HashSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use tempfile::TempDir;
use types::{SealContext, SealedValue, SealingKeyId, WorkspaceId};
use uuid::Uuid;

const CANARY: &str = "sk-canary-0123456789";
const FIRST: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
const SECOND: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

fn label() -> SealContext {
    SealContext {
        workspace: WorkspaceId::new(Uuid::from_u128(1)),
        holder: Uuid::from_u128(2),
        name: "openai".to_owned(),
        version: 1,
        destination: "env:TOKEN".to_owned(),
    }
}

fn canary() -> Plaintext {
    Plaintext::new(CANARY.to_owned())
}

fn open(directory: &Path, in_use: &[SealingKeyId]) -> Result<Vault, VaultError> {
    Vault::open_with(None, directory, &in_use.iter().copied().collect())
}

fn given(keys: &str) -> Keyring {
    keys.parse().unwrap()
}

#[test]
fn a_sealed_value_is_read_with_the_key_and_not_without_it() {
    let directory = TempDir::new().unwrap();
    let vault = open(directory.path(), &[]).unwrap();
    for text in ["", "x", CANARY, "zwölf\nlines", &"k".repeat(64 * 1024)] {
        let sealed = vault.seal(&label(), &Plaintext::new(text.to_owned())).unwrap();
        assert_eq!(vault.open(&label(), &sealed).unwrap().reveal(), text);
        let other = TempDir::new().unwrap();
        assert!(open(other.path(), &[]).unwrap().open(&label(), &sealed).is_err());
    }
    let sealed = vault.seal(&label(), &canary()).unwrap();
    let has = |bytes: &[u8]| bytes.windows(8).any(|window| CANARY.as_bytes().starts_with(window));
    assert!(has(CANARY.as_bytes()) && !has(&sealed.bytes));
}

#[test]
fn t66_a_value_of_one_label_is_not_opened_for_another() {
    let directory = TempDir::new().unwrap();
    let vault = open(directory.path(), &[]).unwrap();
    let sealed = vault.seal(&label(), &canary()).unwrap();
    let others = [
        SealContext { workspace: WorkspaceId::new(Uuid::from_u128(9)), ..label() },
        SealContext { holder: Uuid::from_u128(9), ..label() },
        SealContext { name: "other".to_owned(), ..label() },
        SealContext { version: 2, ..label() },
        SealContext { destination: "env:OTHER".to_owned(), ..label() },
        // The same letters in other fields.
        SealContext { name: "openaienv:".to_owned(), destination: "TOKEN".to_owned(), ..label() },
    ];
    for other in others {
        assert!(vault.open(&other, &sealed).is_err(), "{other:?}");
    }
    assert_eq!(vault.open(&label(), &sealed).unwrap(), canary());
}

#[test]
fn a_changed_byte_anywhere_is_noticed() {
    let vault = Vault::open_with(Some(given(FIRST)), Path::new("/"), &BTreeSet::new()).unwrap();
    let sealed = vault.seal(&label(), &canary()).unwrap();
    for at in 0..sealed.bytes.len() {
        let mut bytes = sealed.bytes.clone();
        bytes[at] ^= 1;
        assert!(vault.open(&label(), &SealedValue { bytes, ..sealed }).is_err(), "byte {at}");
        let cut = SealedValue { bytes: sealed.bytes[..at].to_vec(), ..sealed };
        assert!(vault.open(&label(), &cut).is_err(), "cut at {at}");
    }
    let (mut one, two) = (sealed.clone(), vault.seal(&label(), &canary()).unwrap());
    // The data key of one value with the ciphertext of another.
    one.bytes.splice(60.., two.bytes[60..].iter().copied());
    assert!(vault.open(&label(), &one).is_err());
}

#[test]
fn t66_no_nonce_and_no_ciphertext_comes_twice_in_a_million() {
    let vault = Vault::open_with(Some(given(FIRST)), Path::new("/"), &BTreeSet::new()).unwrap();
    let (mut wraps, mut texts) = (HashSet::new(), HashSet::new());
    let (label, plain) = (label(), canary());
    for _ in 0..1_000_000 {
        let sealed = vault.seal(&label, &plain).unwrap().bytes;
        assert!(wraps.insert(<[u8; 12]>::try_from(&sealed[..12]).unwrap()));
        assert!(texts.insert(<[u8; 24]>::try_from(&sealed[60..84]).unwrap()));
    }
}

#[test]
fn the_key_is_made_once_and_is_its_owners_alone() {
    let directory = TempDir::new().unwrap();
    let sealed = open(directory.path(), &[]).unwrap().seal(&label(), &canary()).unwrap();
    let path = directory.path().join("secrets.key");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&path).unwrap().len(), 32);
    let again = open(directory.path(), &[sealed.key]).unwrap();
    assert_eq!(again.open(&label(), &sealed).unwrap(), canary());
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(names.len(), 1);
}

#[test]
fn a_key_file_that_cannot_be_trusted_is_refused() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("secrets.key");
    let sealed = open(directory.path(), &[]).unwrap().seal(&label(), &canary()).unwrap();
    let refused = || match open(directory.path(), &[sealed.key]).unwrap_err() {
        VaultError::File(error) => error,
        other => panic!("{other}"),
    };
    for mode in [0o640, 0o604, 0o660, 0o644] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert!(
            matches!(refused(), KeyFileError::Unusable(keyfile::Error::Exposed(_))),
            "{mode:o}"
        );
    }
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let key = fs::read(&path).unwrap();
    for wrong in [&key[..31], &[], &[key.as_slice(), b"\n"].concat()] {
        fs::write(&path, wrong).unwrap();
        assert!(
            matches!(refused(), KeyFileError::Unusable(keyfile::Error::Length { .. })),
            "{}",
            wrong.len()
        );
    }
    fs::write(&path, [7; 32]).unwrap();
    assert!(matches!(refused(), KeyFileError::WrongKey(_)));
    fs::remove_file(&path).unwrap();
    assert!(matches!(refused(), KeyFileError::Missing(_)));
    assert!(!path.exists(), "no other key takes its place");
    // The positive case: with the original key everything is readable again.
    fs::write(&path, key).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let vault = open(directory.path(), &[sealed.key]).unwrap();
    assert_eq!(vault.open(&label(), &sealed).unwrap(), canary());
}

/// At whatever point of a rotation the server is killed, everything stays readable, and the next
/// rotation works.
#[test]
fn a_rotation_that_is_interrupted_anywhere_loses_nothing() {
    for committed in [false, true] {
        let directory = TempDir::new().unwrap();
        let mut vault = open(directory.path(), &[]).unwrap();
        let mut sealed = vault.seal(&label(), &canary()).unwrap();
        let before = sealed.key;
        let rotation = vault.begin_rotation(&[before].into()).unwrap();
        let resealed = rotation.reseal(&label(), &sealed).unwrap();
        assert_ne!((resealed.key, &resealed.bytes), (before, &sealed.bytes));
        if committed {
            sealed = resealed;
        }
        // The server is killed here: the file of the new key exists, but has not replaced the old
        // one.
        drop(vault);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        let mut vault = open(directory.path(), &[sealed.key]).unwrap();
        assert_eq!(vault.open(&label(), &sealed).unwrap(), canary(), "committed: {committed}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);

        let rotation = vault.begin_rotation(&[sealed.key].into()).unwrap();
        let last = rotation.reseal(&label(), &sealed).unwrap();
        vault.finish_rotation(&rotation).unwrap();
        assert_eq!(vault.open(&label(), &last).unwrap(), canary());
        assert!(vault.open(&label(), &sealed).is_err(), "the old key is gone");
        let again = open(directory.path(), &[last.key]).unwrap();
        assert_eq!(again.open(&label(), &last).unwrap(), canary());
    }
}

/// A rotation that failed without a crash starts again with the next call.
#[test]
fn a_rotation_whose_commit_failed_can_be_begun_again() {
    let directory = TempDir::new().unwrap();
    let mut vault = open(directory.path(), &[]).unwrap();
    let sealed = vault.seal(&label(), &canary()).unwrap();
    vault.begin_rotation(&[sealed.key].into()).unwrap();
    assert_eq!(vault.open(&label(), &sealed).unwrap(), canary());
    let rotation = vault.begin_rotation(&[sealed.key].into()).unwrap();
    let sealed = rotation.reseal(&label(), &sealed).unwrap();
    vault.finish_rotation(&rotation).unwrap();
    assert_eq!(vault.open(&label(), &sealed).unwrap(), canary());
}

#[test]
fn a_key_that_is_given_makes_no_file_and_rotates_to_the_one_before_it() {
    let directory = TempDir::new().unwrap();
    let with = |keys: &str, in_use: &[SealingKeyId]| {
        let in_use = in_use.iter().copied().collect();
        Vault::open_with(Some(given(keys)), directory.path(), &in_use)
    };
    let mut first = with(FIRST, &[]).unwrap();
    let sealed = first.seal(&label(), &canary()).unwrap();
    let error = first.begin_rotation(&[sealed.key].into()).unwrap_err();
    assert!(matches!(error, RotationError::OneKey));
    assert!(matches!(with(SECOND, &[sealed.key]), Err(VaultError::WrongKey)));

    let mut both = with(&format!("{SECOND},{FIRST}"), &[sealed.key]).unwrap();
    assert_eq!(both.open(&label(), &sealed).unwrap(), canary());
    let rotation = both.begin_rotation(&[sealed.key].into()).unwrap();
    let sealed = rotation.reseal(&label(), &sealed).unwrap();
    both.finish_rotation(&rotation).unwrap();
    let second = with(SECOND, &[sealed.key]).unwrap();
    assert_eq!(second.open(&label(), &sealed).unwrap(), canary());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_is_no_key_is_refused_and_not_told_again() {
    for text in ["", "hunter2", &FIRST[..40], &format!("{FIRST},"), &format!("{FIRST},hunter2")] {
        let error = text.parse::<Keyring>().unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
    for text in [FIRST, &FIRST[..43], &format!(" {FIRST} , {SECOND}\n")] {
        text.parse::<Keyring>().unwrap();
    }
}

#[test]
fn nothing_shows_a_value_or_a_key() {
    let directory = TempDir::new().unwrap();
    let mut vault = open(directory.path(), &[]).unwrap();
    let rotation = vault.begin_rotation(&BTreeSet::new()).unwrap();
    let keys = fs::read(directory.path().join("secrets.key")).unwrap();
    let shown = format!("{:?} {vault:?} {rotation:?} {:?}", canary(), given(FIRST));
    assert!(!shown.contains(CANARY) && !shown.contains(&format!("{:?}", keys[0..4].to_vec())));
    assert_eq!(format!("{:?}", canary()), "Plain(..)");
}
