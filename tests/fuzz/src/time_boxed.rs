//! Runs a fuzz body without libFuzzer, within a time limit: for `cargo test` on stable Rust.
//!
//! Inputs are mutated blindly, not guided by coverage: bodies compensate by reading their input as choices of a
//! generator, or by giving seeds and words. Inputs under `tests/fuzz/regressions/NAME/` are run first, always.
//!
//! - `TESSERA_FUZZ_SECONDS`: how long; 5 if not set.
//! - `TESSERA_FUZZ_SEED`: a number that chooses the inputs; 1 if not set.
//! - `TESSERA_FUZZ_INPUT`: a file; runs this input alone.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A longer run of one input counts as a hang.
const LONGEST_RUN: Duration = Duration::from_secs(20);

/// Longest generated input.
const LONGEST_INPUT: usize = 8 * 1024;

/// Most inputs kept as a base for further ones.
const MOST_KEPT: usize = 512;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Runs `body` on inputs made from `seeds` and `words` until the time is up.
///
/// # Panics
/// When the body does: the input is then kept, and the command to run it alone is printed. When a run takes longer than 20 s.
pub fn run(name: &str, seeds: &[&[u8]], words: &[&str], body: impl Fn(&[u8])) {
    let work = std::env::temp_dir();
    if let Some(path) = std::env::var_os("TESSERA_FUZZ_INPUT") {
        return body(&std::fs::read(path).expect("TESSERA_FUZZ_INPUT names a file"));
    }
    let number = |variable: &str, default: u64| {
        std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
    };
    let (seconds, seed) = (number("TESSERA_FUZZ_SECONDS", 5), number("TESSERA_FUZZ_SEED", 1));
    let mut kept = regressions(name);
    let known = kept.len();
    kept.extend(seeds.iter().map(|seed| seed.to_vec()));
    let mut random = Random(seed);
    if kept.is_empty() {
        kept.push(Vec::new());
    }
    // On disk before each run, so the input survives a stack overflow or a killed process.
    let current = work.join(format!("fuzz-{name}-{}.input", std::process::id()));
    let (begin, mut runs) = (Instant::now(), 0u64);
    for input in kept.clone() {
        run_one(name, &current, &input, &body);
        runs += 1;
    }
    while begin.elapsed() < Duration::from_secs(seconds) {
        let input = mutated(&kept, words, &mut random);
        run_one(name, &current, &input, &body);
        runs += 1;
        if kept.len() < MOST_KEPT {
            kept.push(input);
        } else {
            let first = known.min(MOST_KEPT - 1);
            let place = first + random.below(MOST_KEPT - first);
            kept[place] = input;
        }
    }
    let _ = std::fs::remove_file(&current);
    println!("{name}: {runs} inputs in {seconds} s, seed {seed}");
    assert!(runs > 0, "nothing was run");
}

fn regressions(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions").join(name);
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    paths.into_iter().map(|path| std::fs::read(path).expect("a readable input")).collect()
}

fn run_one(name: &str, current: &Path, input: &[u8], body: &impl Fn(&[u8])) {
    std::fs::write(current, input).expect("the test's folder can be written");
    let begin = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| body(input)));
    let took = begin.elapsed();
    if outcome.is_ok() && took < LONGEST_RUN {
        return;
    }
    let failed = current.with_file_name(format!("fuzz-{name}.failed"));
    std::fs::copy(current, &failed).expect("the test's folder can be written");
    eprintln!(
        "input of {} bytes failed after {took:?}; to run it alone: TESSERA_FUZZ_INPUT={}; once it is mended, keep it \
         in fuzz/regressions/{name}/",
        input.len(),
        failed.display()
    );
    match outcome {
        Err(reason) => resume_unwind(reason),
        Ok(()) => panic!("{name}: one input took {took:?}"),
    }
}

fn mutated(kept: &[Vec<u8>], words: &[&str], random: &mut Random) -> Vec<u8> {
    let mut input = kept[random.below(kept.len())].clone();
    for _ in 0..=random.below(6) {
        let at = random.below(input.len() + 1);
        match random.below(9) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.next() as u8,
            2 if at < input.len() => {
                let end = (at + 1 + random.below(16)).min(input.len());
                input.drain(at..end);
            }
            3 => {
                let more: Vec<u8> = (0..=random.below(64)).map(|_| random.next() as u8).collect();
                input.splice(at..at, more);
            }
            4 => {
                let other = kept[random.below(kept.len())].clone();
                let from = random.below(other.len() + 1);
                let end = (from + random.below(256)).min(other.len());
                input.splice(at..at, other[from..end].iter().copied());
            }
            5 | 6 if !words.is_empty() => {
                let word = words[random.below(words.len())].as_bytes();
                input.splice(at..at, word.iter().copied());
            }
            7 => {
                // Deep or long input is most often a repeated part.
                let end = (at + 1 + random.below(8)).min(input.len());
                let part = input[at..end].to_vec();
                let times = random.below(64);
                input.splice(at..at, part.repeat(times));
            }
            8 => input.truncate(at),
            _ => input.push(random.next() as u8),
        }
    }
    input.truncate(LONGEST_INPUT);
    input
}
