//! The hosts of a step's tasks.

use std::{collections::BTreeMap, str::FromStr};

use thiserror::Error;

use crate::{host_list, job::Job};

/// A step's tasks at most. Slurm's limit is 512 on a node; a mistyped number is larger.
const MOST: u32 = 65_536;

/// The user's wishes, by srun's options.
#[derive(Debug, Default)]
pub struct Wanted {
    pub nodes: Option<u32>,
    pub tasks: Option<u32>,
    pub tasks_per_node: Option<u32>,
    /// A list of hosts.
    pub only: Option<String>,
    /// A list of hosts.
    pub without: Option<String>,
    /// The number of hosts to leave out at the beginning.
    pub relative: usize,
}

/// How tasks are counted: srun(1), `--distribution`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// Host by host, each filled before the next.
    #[default]
    Block,
    /// Round by round, a task of each host.
    Cyclic,
}

impl FromStr for Distribution {
    type Err = String;

    /// The first of Slurm's levels; sockets and cores are the kernel's.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split([':', ',']).next() {
            Some("" | "*" | "block") => Ok(Self::Block),
            Some("cyclic") => Ok(Self::Cyclic),
            _ => Err("block and cyclic are possible".to_owned()),
        }
    }
}

/// The hosts of a step, by their place in the job, and the number of tasks on each.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    pub hosts: Vec<usize>,
    pub tasks: Vec<u32>,
    pub distribution: Distribution,
}

impl Layout {
    /// The number of a host's task in the step.
    pub fn number(&self, host: usize, local: u32) -> u32 {
        match self.distribution {
            Distribution::Block => self.tasks[..host].iter().sum::<u32>() + local,
            Distribution::Cyclic => {
                let before = self.tasks.iter().map(|tasks| *tasks.min(&local)).sum::<u32>();
                before + self.tasks[..host].iter().map(|tasks| u32::from(*tasks > local)).sum::<u32>()
            }
        }
    }

    /// The host of each task, in the order of their numbers.
    pub fn of_tasks(&self) -> BTreeMap<u32, usize> {
        let of_host = |(host, tasks): (usize, &u32)| {
            (0..*tasks).map(move |local| (self.number(host, local), host)).collect::<Vec<_>>()
        };
        self.tasks.iter().enumerate().flat_map(of_host).collect()
    }
}

/// Why a step cannot be laid out.
#[derive(Debug, Error)]
pub enum LayoutError {
    #[error(transparent)]
    List(#[from] host_list::HostListError),
    #[error("{0} is no host of this job")]
    Unknown(String),
    #[error("{wanted} nodes were asked for, and {there} can be had")]
    Nodes { wanted: u32, there: usize },
    #[error("{tasks} tasks on {nodes} nodes are more than {per_node} on each")]
    Tasks { tasks: u32, nodes: usize, per_node: u32 },
    #[error("a step has at most {MOST} tasks")]
    Most,
}

/// Slurm's distributions (srun(1), `--distribution`): each host has a task; the others fill hosts in order, up to the job's tasks
/// on a node, or one after another go to the next host. Without `-n` all the job's tasks run.
pub fn lay_out(wanted: &Wanted, job: &Job) -> Result<Layout, LayoutError> {
    let listed = wanted.only.as_deref().map(|list| places(list, job)).transpose()?;
    let without = wanted.without.as_deref().map(|list| places(list, job)).transpose()?.unwrap_or_default();
    let mut hosts: Vec<usize> = (0..job.hosts.len())
        .filter(|host| !without.contains(host))
        .filter(|host| listed.as_ref().is_none_or(|listed| listed.contains(host)))
        .skip(wanted.relative)
        .collect();
    let there = hosts.len();
    let nodes = wanted.nodes.unwrap_or(0).max(u32::from(there == 0));
    if nodes as usize > there {
        return Err(LayoutError::Nodes { wanted: nodes, there });
    }
    if nodes > 0 {
        hosts.truncate(nodes as usize);
    }
    let whole = wanted.nodes.is_none() && hosts.len() == job.hosts.len();
    let per_node = wanted.tasks_per_node.or(job.tasks_per_node);
    let count = u32::try_from(hosts.len()).unwrap_or(MOST);
    let tasks = match (wanted.tasks, wanted.tasks_per_node, job.tasks) {
        (Some(tasks), ..) => tasks,
        (None, None, Some(tasks)) if whole => tasks,
        _ => count.saturating_mul(per_node.unwrap_or(1)),
    };
    if tasks > MOST {
        return Err(LayoutError::Most);
    }
    hosts.truncate(tasks as usize);
    let count = u32::try_from(hosts.len()).unwrap_or(MOST);
    let room = per_node.unwrap_or(1).max(tasks.div_ceil(count));
    if let Some(per_node) = wanted.tasks_per_node.filter(|per_node| *per_node < room) {
        return Err(LayoutError::Tasks { tasks, nodes: hosts.len(), per_node });
    }
    let mut left = tasks - count;
    let tasks = (0..count).map(|host| match job.distribution {
        Distribution::Block => {
            let more = left.min(room - 1);
            left -= more;
            1 + more
        }
        Distribution::Cyclic => tasks / count + u32::from(host < tasks % count),
    });
    Ok(Layout { tasks: tasks.collect(), hosts, distribution: job.distribution })
}

fn places(list: &str, job: &Job) -> Result<Vec<usize>, LayoutError> {
    host_list::expand(list)?
        .into_iter()
        .map(|name| {
            let place = job.hosts.iter().position(|host| host.is_called(&name));
            place.ok_or(LayoutError::Unknown(name))
        })
        .collect()
}

/// Slurm's way to write numbers of tasks: `2(x3),1`.
pub fn compact(tasks: &[u32]) -> String {
    let runs = tasks.chunk_by(|one, next| one == next).map(|run| match run {
        [one] => one.to_string(),
        _ => format!("{}(x{})", run[0], run.len()),
    });
    runs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::job;

    /// Three hosts n0 to n2; `tasks` and `per_node` are the job's.
    fn three_hosts(per_node: &str, tasks: &str, distribution: &str) -> Job {
        let variables = [
            ("GPU_RUN_HOSTS", "n0.j,n1.j,n2.j"),
            ("GPU_RUN_INDEX", "0"),
            ("GPU_RUN_TASKS_PER_NODE", per_node),
            ("GPU_RUN_TASKS", tasks),
            ("SLURM_DISTRIBUTION", distribution),
        ];
        job(&variables.into_iter().filter(|(_, value)| !value.is_empty()).collect::<Vec<_>>()).unwrap()
    }

    fn laid_out(per_node: &str, tasks: &str, wanted: &Wanted) -> Result<String, LayoutError> {
        let layout = lay_out(wanted, &three_hosts(per_node, tasks, ""))?;
        let each = layout.hosts.iter().zip(&layout.tasks).map(|(host, tasks)| format!("n{host}:{tasks}"));
        Ok(each.collect::<Vec<_>>().join(" "))
    }

    /// From Slurm's documentation; `4 of 2,1,1` is an example there.
    #[test]
    fn tasks_are_laid_out_as_slurms_documentation_says() {
        let n = |tasks| Wanted { tasks: Some(tasks), ..Wanted::default() };
        let nodes = |nodes| Wanted { nodes: Some(nodes), ..Wanted::default() };
        let only = |list: &str| Wanted { only: Some(list.into()), ..Wanted::default() };
        let table = [
            // Neither -n nor a job's number: a task on each node.
            ("", "", Wanted::default(), "n0:1 n1:1 n2:1"),
            ("2", "", Wanted::default(), "n0:2 n1:2 n2:2"),
            ("2", "5", Wanted::default(), "n0:2 n1:2 n2:1"),
            ("2", "", n(4), "n0:2 n1:1 n2:1"),
            ("2", "", n(6), "n0:2 n1:2 n2:2"),
            ("4", "", n(6), "n0:4 n1:1 n2:1"),
            // More than there is room for: each node takes as many.
            ("", "", n(7), "n0:3 n1:3 n2:1"),
            // Fewer tasks than nodes: fewer nodes.
            ("2", "6", n(1), "n0:1"),
            ("2", "6", n(2), "n0:1 n1:1"),
            ("2", "6", nodes(1), "n0:2"),
            ("2", "6", Wanted { tasks: Some(1), ..nodes(1) }, "n0:1"),
            ("2", "6", Wanted { tasks: Some(3), ..nodes(1) }, "n0:3"),
            ("2", "6", Wanted { tasks_per_node: Some(1), ..Wanted::default() }, "n0:1 n1:1 n2:1"),
            ("2", "6", Wanted { tasks_per_node: Some(4), ..nodes(2) }, "n0:4 n1:4"),
            ("2", "6", only("n1.j"), "n1:2"),
            ("2", "6", only("n[1-2]"), "n1:2 n2:2"),
            ("2", "6", Wanted { tasks: Some(1), ..only("n2") }, "n2:1"),
            ("2", "6", Wanted { without: Some("n0".into()), ..Wanted::default() }, "n1:2 n2:2"),
            ("1", "", Wanted { relative: 1, ..nodes(1) }, "n1:1"),
        ];
        for (per_node, tasks, wanted, expected) in table {
            assert_eq!(
                laid_out(per_node, tasks, &wanted).unwrap(),
                expected,
                "{per_node} {tasks} {wanted:?}"
            );
        }
    }

    /// srun(1): "cyclic" gives consecutive tasks to consecutive nodes.
    #[test]
    fn tasks_are_counted_by_their_distribution() {
        for (distribution, expected) in [
            ("block:cyclic", [(0, vec![0, 1, 2, 3]), (1, vec![4]), (2, vec![5])]),
            ("cyclic,Pack", [(0, vec![0, 3]), (1, vec![1, 4]), (2, vec![2, 5])]),
        ] {
            let layout = lay_out(&Wanted::default(), &three_hosts("4", "6", distribution)).unwrap();
            for (host, numbers) in expected {
                let found = (0..layout.tasks[host]).map(|local| layout.number(host, local));
                assert_eq!(found.collect::<Vec<_>>(), numbers, "{distribution}, host {host}");
            }
            assert!(layout.of_tasks().into_keys().eq(0..6), "{distribution}");
        }
        // An uneven rest.
        let layout = lay_out(&Wanted::default(), &three_hosts("3", "7", "cyclic")).unwrap();
        assert_eq!(layout.tasks, [3, 2, 2]);
        assert_eq!(layout.of_tasks().into_values().collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0]);
        assert!("plane=2".parse::<Distribution>().is_err());
    }

    #[test]
    fn what_the_job_does_not_have_is_refused() {
        let refused = |wanted: Wanted| laid_out("2", "", &wanted).unwrap_err().to_string();
        let of = Wanted::default;
        assert!(refused(Wanted { nodes: Some(4), ..of() }).contains("4 nodes were asked for, and 3"));
        assert!(refused(Wanted { only: Some("n7".into()), ..of() }).contains("n7 is no host of this job"));
        assert!(refused(Wanted { relative: 3, ..of() }).contains("0 can be had"));
        let wanted = Wanted { tasks: Some(9), tasks_per_node: Some(2), ..of() };
        assert!(refused(wanted).contains("9 tasks on 3 nodes"));
        assert!(refused(Wanted { tasks: Some(u32::MAX), ..of() }).contains("at most"));
    }

    #[test]
    fn numbers_of_tasks_are_written_shortly() {
        assert_eq!(compact(&[2, 2, 1]), "2(x2),1");
        assert_eq!(compact(&[4]), "4");
    }
}
