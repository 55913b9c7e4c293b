use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tessera_api::{DeviceName, PciBusId};

use super::record::Record;
use super::writer::{Change, Writer, temporary, write_unsynced};
use crate::boot_id::BootId;
use crate::error::JournalError;
use crate::file_system::{FileIdentity, FileSystem, Listed};
use crate::record::{ClaimRecord, HardwareRecord};

/// The journal of one driver on one node. Several plugin instances may have it open: every read goes to the disk, and a
/// record is changed only under its lock.
///
/// Functions without `async` block for a few file operations. `async` functions wait until the change is on the disk,
/// without blocking a thread of the runtime.
pub struct Journal {
    directory: PathBuf,
    boot_id: BootId,
    file_system: Arc<dyn FileSystem>,
    writer: Writer,
    /// Parsed claim files, so 64 concurrent claims don't parse each other's records 64 times.
    parsed: Mutex<HashMap<String, (FileIdentity, Arc<ClaimRecord>)>>,
}

/// An existing record, readable or not.
#[derive(Clone, Debug)]
pub struct Entry<R> {
    /// The record's name, from its file's name; for a claim, its UID.
    pub id: String,
    /// The record, or the error of reading it.
    pub record: Result<R, JournalError>,
}

impl Journal {
    /// Opens the journal in `directory`, creating a missing directory.
    ///
    /// # Errors
    /// [`JournalError::Io`] where the directory can't be created.
    pub fn open(
        file_system: Arc<dyn FileSystem>,
        directory: PathBuf,
        boot_id: BootId,
    ) -> Result<Self, JournalError> {
        for kind in [ClaimRecord::DIRECTORY, HardwareRecord::DIRECTORY] {
            let path = directory.join(kind);
            file_system
                .create_directory(&path)
                .map_err(|error| JournalError::io("make the directory", &path, error))?;
        }
        let writer = Writer::start(file_system.clone())?;
        Ok(Self { directory, boot_id, file_system, writer, parsed: Mutex::default() })
    }

    /// The current boot.
    #[must_use]
    pub const fn boot_id(&self) -> &BootId {
        &self.boot_id
    }

    /// The journal's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads a claim's record; `None` where there is none.
    ///
    /// # Errors
    /// [`JournalError::Corrupt`] and [`JournalError::Newer`] where the record can't be understood, [`JournalError::Io`]
    /// where it can't be read.
    pub fn claim(&self, uid: &str) -> Result<Option<ClaimRecord>, JournalError> {
        self.read(uid)
    }

    /// Reads all claims' records, by UID.
    ///
    /// # Errors
    /// [`JournalError::Io`] where the directory can't be listed; a bad record is an error of its own entry only.
    pub fn claims(&self) -> Result<Vec<Entry<ClaimRecord>>, JournalError> {
        let entries = self.shared_claims()?;
        let own = |entry: Entry<Arc<ClaimRecord>>| Entry {
            id: entry.id,
            record: entry.record.map(Arc::unwrap_or_clone),
        };
        Ok(entries.into_iter().map(own).collect())
    }

    /// Like [`Journal::claims`], without copying records unchanged since the last read.
    ///
    /// # Errors
    /// As [`Journal::claims`].
    pub fn shared_claims(&self) -> Result<Vec<Entry<Arc<ClaimRecord>>>, JournalError> {
        let files = self.files::<ClaimRecord>()?;
        let mut files: Vec<(&str, FileIdentity)> =
            files.iter().filter_map(|file| Some((record_id(&file.name)?, file.identity))).collect();
        files.sort_unstable_by_key(|(id, _)| *id);
        let known: Vec<Option<Arc<ClaimRecord>>> = {
            let parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
            let known = |id: &str, identity| parsed.get(id).filter(|(known, _)| *known == identity);
            files
                .iter()
                .map(|(id, identity)| known(id, *identity).map(|(_, record)| record.clone()))
                .collect()
        };
        let mut entries = Vec::with_capacity(files.len());
        let mut parsed = Vec::new();
        for ((id, identity), known) in files.iter().zip(known) {
            let record = match known {
                Some(record) => Ok(record),
                None => match self.read::<ClaimRecord>(id) {
                    Ok(Some(record)) => {
                        let record = Arc::new(record);
                        parsed.push((*id, *identity, record.clone()));
                        Ok(record)
                    }
                    // Removed since listing.
                    Ok(None) => continue,
                    Err(error) => Err(error),
                },
            };
            entries.push(Entry { id: (*id).to_owned(), record });
        }
        self.remember(&files, parsed);
        Ok(entries)
    }

    fn remember(&self, files: &[(&str, FileIdentity)], new: Vec<(&str, FileIdentity, Arc<ClaimRecord>)>) {
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, identity, record) in new {
            // A record replaced between listing and reading is cached under the listed identity, which no
            // file has any more.
            parsed.insert(id.to_owned(), (identity, record));
        }
        if parsed.len() > files.len() {
            parsed.retain(|id, _| files.binary_search_by(|(listed, _)| (*listed).cmp(id)).is_ok());
        }
    }

    /// Writes a claim's record, to survive this process but perhaps not a power failure: the record would not be
    /// valid in another boot anyway. The caller holds the claim's lock.
    ///
    /// # Errors
    /// [`JournalError::Io`]; the record is then unchanged.
    pub fn put_claim(&self, record: &ClaimRecord) -> Result<(), JournalError> {
        let path = self.path::<ClaimRecord>(&record.uid);
        write_unsynced(&*self.file_system, &path, Some(&encode(record, &path)?))
    }

    /// Removes a claim's record, readable or not. The caller holds the claim's lock.
    ///
    /// Not synced: a record brought back by a power failure is of another boot and ignored.
    ///
    /// # Errors
    /// [`JournalError::Io`]; the record is then unchanged.
    pub fn remove_claim(&self, uid: &str) -> Result<(), JournalError> {
        write_unsynced(&*self.file_system, &self.path::<ClaimRecord>(uid), None)
    }

    /// Reads all hardware records, by id.
    ///
    /// # Errors
    /// [`JournalError::Io`] where the directory can't be listed; a bad record is an error of its own entry only.
    pub fn hardware(&self) -> Result<Vec<Entry<HardwareRecord>>, JournalError> {
        self.hardware_where(|_| true)
    }

    fn hardware_where(
        &self,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<Entry<HardwareRecord>>, JournalError> {
        let files = self.files::<HardwareRecord>()?;
        let ids = files.iter().filter_map(|file| record_id(&file.name)).filter(|id| wanted(id));
        let entries = ids.filter_map(|id| {
            let record = self.read::<HardwareRecord>(id).transpose()?;
            Some(Entry { id: id.to_owned(), record })
        });
        Ok(entries.collect())
    }

    /// Reads one hardware record; `None` where there is none.
    ///
    /// # Errors
    /// [`JournalError::Corrupt`] and [`JournalError::Newer`] where the record can't be understood, [`JournalError::Io`]
    /// where it can't be read.
    pub fn hardware_record(&self, id: &str) -> Result<Option<HardwareRecord>, JournalError> {
        self.read(id)
    }

    /// Writes hardware records to the disk, with one sync for all of them. The caller holds the cards' locks.
    ///
    /// # Errors
    /// [`JournalError::Io`]; the record named by the error is then unchanged, and others may be written.
    pub async fn put_hardware(&self, records: &[&HardwareRecord]) -> Result<(), JournalError> {
        let change = |record: &&HardwareRecord| {
            let path = self.path::<HardwareRecord>(&record.id);
            let content = Some(encode(*record, &path)?);
            Ok(Change { path, content })
        };
        self.writer.write(records.iter().map(change).collect::<Result<_, JournalError>>()?).await
    }

    /// Writes a hardware record, to survive this process but perhaps not a power failure. The caller holds the
    /// card's lock.
    ///
    /// # Errors
    /// [`JournalError::Io`]; the record is then unchanged.
    pub fn put_hardware_unsynced(&self, record: &HardwareRecord) -> Result<(), JournalError> {
        let path = self.path::<HardwareRecord>(&record.id);
        write_unsynced(&*self.file_system, &path, Some(&encode(record, &path)?))
    }

    /// Removes a hardware record for the rest of this boot; a power failure may bring the record back. The caller holds the
    /// card's lock.
    ///
    /// # Errors
    /// [`JournalError::Io`]; the record is then unchanged.
    pub fn remove_hardware_unsynced(&self, id: &str) -> Result<(), JournalError> {
        write_unsynced(&*self.file_system, &self.path::<HardwareRecord>(id), None)
    }

    /// Reads the hardware records of one card, by id. Only the card's own files are read.
    ///
    /// # Errors
    /// [`JournalError::Io`] where the directory can't be listed; a bad record is an error of its own entry only.
    pub fn hardware_of(&self, card: PciBusId) -> Result<Vec<Entry<HardwareRecord>>, JournalError> {
        let prefix = format!("{}-", DeviceName::Card(card));
        let mut entries = self.hardware_where(|id| id.starts_with(&prefix))?;
        // One card's name may be a prefix of another's.
        entries.retain(|entry| entry.record.as_ref().ok().is_none_or(|record| record.card == card));
        Ok(entries)
    }

    /// The cards with hardware records, complete or half written. The card of an unreadable record is taken from
    /// its name.
    ///
    /// # Errors
    /// [`JournalError::Io`] where the directory can't be listed.
    pub fn cards_with_hardware(&self) -> Result<BTreeSet<PciBusId>, JournalError> {
        let files = self.files::<HardwareRecord>()?;
        let card = |file: &Listed| {
            let whole = record_id(&file.name);
            let id = whole.or_else(|| unfinished_id(&file.name))?;
            // A record's name begins with the name of its card, or of a part of the card.
            let ends = id.match_indices('-').map(|(end, _)| end).chain([id.len()]);
            let mut names = ends.filter_map(|end| id[..end].parse::<DeviceName>().ok());
            Some(names.next_back()?.card())
        };
        let mut cards: BTreeSet<PciBusId> = files.iter().filter_map(card).collect();
        cards.extend(self.hardware()?.into_iter().filter_map(|entry| Some(entry.record.ok()?.card)));
        Ok(cards)
    }

    /// Removes hardware records half written at a crash. The caller holds the card's lock, or knows nothing else
    /// runs.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn remove_unfinished_hardware(&self, card: PciBusId) -> Result<(), JournalError> {
        let prefix = format!(".{}-", DeviceName::Card(card));
        let is_unfinished = |file: &&Listed| file.name.starts_with(&prefix) && file.name.ends_with(".new");
        let files = self.files::<HardwareRecord>()?;
        let directory = self.directory.join(HardwareRecord::DIRECTORY);
        files.iter().filter(is_unfinished).try_for_each(|file| self.remove(&directory.join(&file.name)))
    }

    /// Removes a hardware record from the disk. The caller holds the card's lock.
    ///
    /// # Errors
    /// [`JournalError::Io`]; the record is then unchanged.
    pub async fn remove_hardware(&self, id: &str) -> Result<(), JournalError> {
        self.writer.write(vec![Change { path: self.path::<HardwareRecord>(id), content: None }]).await
    }

    /// UIDs of claims with a record half written at a crash.
    ///
    /// # Errors
    /// [`JournalError::Io`] where the directory can't be listed.
    pub fn unfinished_claims(&self) -> Result<Vec<String>, JournalError> {
        let files = self.files::<ClaimRecord>()?;
        Ok(files.iter().filter_map(|file| unfinished_id(&file.name)).map(str::to_owned).collect())
    }

    /// Removes a claim's record half written at a crash. The caller holds the claim's lock.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn remove_unfinished_claim(&self, uid: &str) -> Result<(), JournalError> {
        self.remove(&temporary(&self.path::<ClaimRecord>(uid)))
    }

    /// Removes a file, if there.
    fn remove(&self, path: &Path) -> Result<(), JournalError> {
        match self.file_system.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(JournalError::io("remove", path, error))
            }
            _ => Ok(()),
        }
    }

    fn files<R: Record>(&self) -> Result<Vec<Listed>, JournalError> {
        let path = self.directory.join(R::DIRECTORY);
        self.file_system.list(&path).map_err(|error| JournalError::io("list", path, error))
    }

    fn path<R: Record>(&self, id: &str) -> PathBuf {
        self.directory.join(R::DIRECTORY).join(format!("{id}.json"))
    }

    fn read<R: Record>(&self, id: &str) -> Result<Option<R>, JournalError> {
        let path = self.path::<R>(id);
        let bytes = match self.file_system.read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(JournalError::Corrupt { path, reason: error.to_string() });
            }
            Err(error) => return Err(JournalError::io("read", path, error)),
        };
        decode(id, &bytes, &path).map(Some)
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Journal").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// The record's id from its file's name; `None` where the file is not ours.
fn record_id(file_name: &str) -> Option<&str> {
    file_name.strip_suffix(".json").filter(|id| !id.is_empty() && !id.starts_with('.'))
}

/// The id of a record half written, from its file's name.
fn unfinished_id(file_name: &str) -> Option<&str> {
    file_name.strip_prefix('.')?.strip_suffix(".new").and_then(record_id)
}

fn encode<R: Record>(record: &R, path: &Path) -> Result<Vec<u8>, JournalError> {
    let mut content = serde_json::to_vec_pretty(record)
        .map_err(|error| JournalError::io("write", path, io::Error::other(error)))?;
    content.push(b'\n');
    Ok(content)
}

fn decode<R: Record>(id: &str, bytes: &[u8], path: &Path) -> Result<R, JournalError> {
    let corrupt = |reason: String| JournalError::Corrupt { path: path.to_owned(), reason };
    if bytes.is_empty() {
        return Err(corrupt("it is empty, as after a power failure".into()));
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| corrupt(error.to_string()))?;
    // Checked first: a newer form may differ in anything else.
    let version = value.get("version").and_then(Value::as_u64);
    let version = version.ok_or_else(|| corrupt("it has no version".into()))?;
    if version > R::VERSION {
        return Err(JournalError::Newer { path: path.to_owned(), version, known: R::VERSION });
    }
    let record = R::deserialize(value).map_err(|error| corrupt(error.to_string()))?;
    if record.id() != id {
        return Err(corrupt(format!("it is the record of {:?}", record.id())));
    }
    Ok(record)
}
