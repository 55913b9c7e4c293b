//! Static SM partitions: multiprocessors reserved for some clients by a daemon started with `-S`.
//!
//! Commands, answers and refusals are from NVIDIA's documentation ("Using Static SM Partitioning") and from programs
//! parsing the real daemon's output; the form of the opaque ids is made up.

use std::fmt::Write;

use super::INVALID_RESOURCE_CONFIGURATION;

/// The partitions of a daemon's one device.
#[derive(Debug)]
pub struct Partitions {
    uuid: String,
    multiprocessors: u32,
    chunk: u32,
    chunks: u32,
    there: Vec<Partition>,
    next: u32,
}

/// Multiprocessors reserved for some clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Without the device's UUID.
    pub id: String,
    /// Number of chunks.
    pub chunks: u32,
    /// How many multiprocessors.
    pub multiprocessors: u32,
}

/// Properties of a device needed for partitions.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    /// Multiprocessors of a chunk.
    pub size: u32,
    /// How many there are.
    pub count: u32,
}

impl Chunks {
    /// Of a device: Ampere and newer, no MIG partition. A chunk has 8 multiprocessors from Hopper on and 4 before. There are
    /// fewer chunks than the multiprocessors would fill: 10 of 92 in NVIDIA's example, 15 of 132 on an H100, since a chunk
    /// lies in one cluster of the chip.
    pub fn of(compute_major: u32, multiprocessors: u32, is_mig: bool) -> Option<Self> {
        let (size, unused) = match compute_major {
            _ if is_mig => return None,
            ..8 => return None,
            8 => (4, 0),
            _ => (8, 1),
        };
        let count = (multiprocessors / size).checked_sub(unused)?;
        (count > 0).then_some(Self { size, count })
    }
}

impl Partitions {
    /// None yet.
    pub fn new(uuid: &str, multiprocessors: u32, chunks: Chunks) -> Self {
        Self {
            uuid: uuid.to_owned(),
            multiprocessors,
            chunk: chunks.size,
            chunks: chunks.count,
            there: Vec::new(),
            // Ids differ between daemons, so that clients cannot rely on old ones.
            next: std::process::id() << 8,
        }
    }

    /// All of them, oldest first.
    pub fn all(&self) -> &[Partition] {
        &self.there
    }

    fn used(&self) -> u32 {
        self.there.iter().map(|partition| partition.chunks).sum()
    }

    fn is_named(&self, device: &str) -> bool {
        device.len() >= "GPU-".len() + 4 && self.uuid.starts_with(device)
    }

    /// `sm_partition add`
    pub fn add(&mut self, device: &str, chunks: &str) -> String {
        if !self.is_named(device) {
            return format!("Device {device} not found");
        }
        let free = self.chunks - self.used();
        let asked: u32 = chunks.parse().unwrap_or(0);
        if asked == 0 || asked > free {
            return format!(
                "Failed to fulfill the requested SM partition of {chunks} chunks, error {}",
                super::error_name(INVALID_RESOURCE_CONFIGURATION)
            );
        }
        // As long as a real id, and also with slashes in it.
        let id = format!("{:A<36}", format!("D/{:x}e/", self.next));
        self.next = self.next.wrapping_add(1);
        let answer = format!("Partition {}/{id} created", self.uuid);
        self.there.push(Partition { id, chunks: asked, multiprocessors: asked * self.chunk });
        answer
    }

    /// `sm_partition rm`; `used` are the partitions with clients.
    pub fn remove(&mut self, device: &str, id: &str, used: &[String]) -> String {
        let known = self.there.iter().position(|partition| partition.id == id);
        match known.filter(|_| self.is_named(device)) {
            None => format!("Partition {id} not found"),
            Some(_) if used.iter().any(|used| used == id) => {
                format!("Partition {id} in use. Terminate all clients before removing.")
            }
            Some(position) => {
                self.there.remove(position);
                String::new()
            }
        }
    }

    /// `lspart`
    pub fn list(&self, used: &[String]) -> String {
        let mut text = format!(
            "{:<14} {:<38} {:>6} {:>6} {:>5} {:>5} {:>8}\n",
            "GPU", "Partition", "free", "used", "free", "used", "clients"
        );
        let _ =
            writeln!(text, "{:<14} {:<38} {:>6} {:>6} {:>5} {:>5}", "", "", "chunks", "chunks", "SM", "SM");
        let gpu: String = self.uuid.chars().take(12).collect();
        let taken: u32 = self.there.iter().map(|partition| partition.multiprocessors).sum();
        let _ = write!(
            text,
            "{gpu:<14} {:<38} {:>6} {:>6} {:>5} {taken:>5}",
            "",
            self.chunks - self.used(),
            self.used(),
            self.multiprocessors - taken
        );
        for Partition { id, chunks, multiprocessors } in &self.there {
            let clients = if used.contains(id) { "Yes" } else { "No" };
            let _ = write!(
                text,
                "\n{gpu:<14} {id:<38} {:>6} {chunks:>6} {:>5} {multiprocessors:>5} {clients:>8}",
                "", ""
            );
        }
        text
    }
}

/// The partition named by `CUDA_MPS_SM_PARTITION` on a device: `GPU-…/<id>`, also with the beginning of the UUID.
pub fn named(variable: &str, uuid: &str) -> Option<String> {
    let (device, id) = variable.split_once('/')?;
    (device.starts_with("GPU-") && uuid.starts_with(device)).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-74d43ed3-cdf7-e667-3644-bf5b4f46ed65";

    #[test]
    fn chunks_are_those_of_the_field() {
        let count =
            |major, multiprocessors| Chunks::of(major, multiprocessors, false).map(|chunks| chunks.count);
        assert_eq!(
            (count(9, 132), count(9, 92), count(8, 108), count(7, 80)),
            (Some(15), Some(10), Some(27), None)
        );
        assert!(Chunks::of(9, 16, true).is_none());
    }

    #[test]
    fn chunks_are_given_out_once() {
        let mut partitions = Partitions::new(UUID, 132, Chunks { size: 8, count: 15 });
        let created = partitions.add("GPU-74d43ed3", "10");
        let id = created.split_whitespace().nth(1).and_then(|name| named(name, UUID)).expect("an id");
        assert!(partitions.add(UUID, "6").contains("CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"));
        for wrong in ["0", "-1", "x"] {
            assert!(partitions.add(UUID, wrong).starts_with("Failed"), "{wrong}");
        }
        assert!(partitions.add("GPU-1", "1").contains("not found"));
        let rows: Vec<Vec<String>> = partitions
            .list(std::slice::from_ref(&id))
            .lines()
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect();
        assert_eq!(rows[2], ["GPU-74d43ed3", "5", "10", "52", "80"]);
        assert_eq!(rows[3], ["GPU-74d43ed3", &id, "10", "80", "Yes"]);
        assert!(partitions.remove("GPU-74d43ed3", &id, std::slice::from_ref(&id)).contains("in use"));
        assert_eq!(partitions.remove("GPU-74d43ed3", &id, &[]), "");
        assert!(partitions.remove("GPU-74d43ed3", &id, &[]).contains("not found"));
    }
}
