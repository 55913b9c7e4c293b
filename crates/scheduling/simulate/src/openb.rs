//! Traces in the form of Alibaba's openb: one CSV file with nodes, one with pods.
//!
//! Nodes have the columns `cpu_milli`, `memory_mib`, `gpu` (how many) and `model`; pods `cpu_milli`, `memory_mib`, `num_gpu`,
//! `gpu_milli` (thousandths of each card) and, if some pods require certain models, `gpu_spec` (models between `|`). Other columns are
//! ignored, including times, because pods arrive in random order. The first line names the columns. Lines are passed one at a time,
//! so that a file need not be in memory.

pub(crate) mod table;

use std::collections::HashMap;

use tessera_placement::packing::{Demand, InvalidDemand, InvalidNode, MAX_MODELS, ModelSet, Node};

use crate::TypicalPods;
use table::{Row, Table};

/// Most nodes of a trace.
pub const MOST_NODES: usize = 100_000;

/// Most pods of a trace.
pub const MOST_PODS: usize = 10_000_000;

/// Longest line, in bytes.
pub const LONGEST_LINE: usize = 64 << 10;

/// An invalid line of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TraceError {
    /// Line number, from 1.
    pub line: usize,
    /// The problem.
    pub problem: Problem,
}

/// A problem with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The first line lacks a column.
    #[error("there is no column {0}; the first line must name it")]
    NoColumn(&'static str),
    /// An empty line.
    #[error("the line is empty")]
    Empty,
    /// A line longer than [`LONGEST_LINE`].
    #[error("the line is longer than {LONGEST_LINE} bytes")]
    TooLong,
    /// Fewer or more values than columns.
    #[error("{found} values for {wanted} columns")]
    Values {
        /// Number of values in the line.
        found: usize,
        /// Number of columns.
        wanted: usize,
    },
    /// A value is missing.
    #[error("no value for {0}")]
    Gap(&'static str),
    /// A value is no whole number.
    #[error("{column} is {value:?}, not a whole number")]
    NoNumber {
        /// Name of the column.
        column: &'static str,
        /// The value as written.
        value: String,
    },
    /// A value is negative.
    #[error("{column} is {value}: negative")]
    Negative {
        /// Name of the column.
        column: &'static str,
        /// The value as written.
        value: String,
    },
    /// A value must not be zero.
    #[error("{0} is 0")]
    Zero(&'static str),
    /// A value is larger than any machine has.
    #[error("{column} is {value}: more than any machine has")]
    TooLarge {
        /// Name of the column.
        column: &'static str,
        /// The value as written.
        value: u64,
    },
    /// An impossible node.
    #[error(transparent)]
    Node(#[from] InvalidNode),
    /// An impossible demand.
    #[error(transparent)]
    Demand(#[from] InvalidDemand),
    /// No node has this model.
    #[error("no node has cards of the model {0:?}")]
    UnknownModel(String),
    /// More lines than are supported.
    #[error("more than {0} lines")]
    TooMany(usize),
    /// The file has a header but no rows.
    #[error("the file has no rows")]
    None,
}

/// Nodes and pods of a trace.
#[derive(Clone, Debug)]
pub struct Trace {
    nodes: Vec<Node>,
    /// Distinct demands.
    demands: Vec<Demand>,
    /// Each pod's index in `demands`.
    pods: Vec<u32>,
}

impl Trace {
    /// The nodes in the order of their file, all empty.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The distinct demands of the pods. [`Trace::pods`] has indexes into this list.
    #[must_use]
    pub fn demands(&self) -> &[Demand] {
        &self.demands
    }

    /// The pods in the order of their file, each as the index of its demand.
    #[must_use]
    pub fn pods(&self) -> &[u32] {
        &self.pods
    }

    /// The demand of a pod.
    #[must_use]
    pub fn demand(&self, pod: u32) -> &Demand {
        &self.demands[pod as usize]
    }

    /// Total thousandths of cards.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.nodes.iter().map(Node::free).sum()
    }

    /// Thousandths of a card requested by the average pod.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let asked: u64 = self.pods.iter().map(|pod| self.demand(*pod).total()).sum();
        asked as f64 / self.pods.len().max(1) as f64
    }

    /// The mix of the trace, for measuring fragmentation.
    #[must_use]
    pub fn typical_pods(&self) -> TypicalPods {
        let mut counts = vec![0.0; self.demands.len()];
        for pod in &self.pods {
            counts[*pod as usize] += 1.0;
        }
        TypicalPods::new(self.demands.iter().zip(counts))
    }

    /// Reads both files from memory.
    ///
    /// # Errors
    /// The first problem of the nodes' or the pods' file.
    pub fn parse(nodes: &str, pods: &str) -> Result<Self, TraceError> {
        let mut reader = NodeReader::default();
        nodes.lines().try_for_each(|line| reader.line(line))?;
        let mut reader = reader.finish()?;
        pods.lines().try_for_each(|line| reader.line(line))?;
        reader.finish()
    }
}

/// Reads the nodes' file, line by line.
#[derive(Debug, Default)]
pub struct NodeReader {
    table: Table,
    nodes: Nodes,
}

#[derive(Debug, Default)]
struct Nodes {
    nodes: Vec<Node>,
    models: HashMap<String, u8>,
}

impl NodeReader {
    /// Takes the next line, without its line ending.
    ///
    /// # Errors
    /// The line is not a valid node.
    pub fn line(&mut self, text: &str) -> Result<(), TraceError> {
        let Some(row) = self.table.row(text, &["cpu_milli", "memory_mib", "gpu", "model"])? else {
            return Ok(());
        };
        self.nodes.add(&row).map_err(|problem| TraceError { line: row.line, problem })
    }

    /// Ends the nodes' file. Returns a reader for the pods on these nodes.
    ///
    /// # Errors
    /// The file has no node.
    pub fn finish(self) -> Result<PodReader, TraceError> {
        let Nodes { nodes, models } = self.nodes;
        self.table.end(nodes.is_empty())?;
        let trace = Trace { nodes, demands: Vec::new(), pods: Vec::new() };
        Ok(PodReader { table: Table::default(), pods: Pods { models, trace, known: HashMap::new() } })
    }
}

impl Nodes {
    fn add(&mut self, row: &Row<'_>) -> Result<(), Problem> {
        if self.nodes.len() == MOST_NODES {
            return Err(Problem::TooMany(MOST_NODES));
        }
        let (cpu_milli, memory_mib) = (row.positive("cpu_milli")?, row.positive("memory_mib")?);
        let cards = row.positive("gpu")?;
        let name = row.text("model")?;
        // `Node` refuses the index of a model beyond the maximum.
        let next = u8::try_from(self.models.len()).unwrap_or(MAX_MODELS);
        let model = self.models.get(name).copied().unwrap_or(next);
        self.nodes.push(Node::new(model, cards, cpu_milli, memory_mib)?);
        self.models.entry(name.to_owned()).or_insert(model);
        Ok(())
    }
}

/// Reads the pods' file, line by line.
#[derive(Debug)]
pub struct PodReader {
    table: Table,
    pods: Pods,
}

#[derive(Debug)]
struct Pods {
    models: HashMap<String, u8>,
    trace: Trace,
    known: HashMap<Demand, u32>,
}

impl PodReader {
    /// Takes the next line, without its line ending.
    ///
    /// # Errors
    /// The line is not a valid pod.
    pub fn line(&mut self, text: &str) -> Result<(), TraceError> {
        let columns = ["cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];
        let Some(row) = self.table.row(text, &columns)? else { return Ok(()) };
        self.pods.add(&row).map_err(|problem| TraceError { line: row.line, problem })
    }

    /// Ends the pods' file.
    ///
    /// # Errors
    /// The file has no pod.
    pub fn finish(self) -> Result<Trace, TraceError> {
        self.table.end(self.pods.trace.pods.is_empty())?;
        Ok(self.pods.trace)
    }
}

impl Pods {
    fn add(&mut self, row: &Row<'_>) -> Result<(), Problem> {
        if self.trace.pods.len() == MOST_PODS {
            return Err(Problem::TooMany(MOST_PODS));
        }
        let models = self.models(row.text_or_nothing("gpu_spec"))?;
        let (cpu_milli, memory_mib) = (row.number("cpu_milli")?, row.number("memory_mib")?);
        let demand =
            Demand::new(cpu_milli, memory_mib, row.number("num_gpu")?, row.number("gpu_milli")?, models)?;
        let demands = &mut self.trace.demands;
        let pod = *self.known.entry(demand).or_insert_with(|| {
            demands.push(demand);
            // There are no more demands than pods, whose number fits u32.
            (demands.len() - 1) as u32
        });
        self.trace.pods.push(pod);
        Ok(())
    }

    fn models(&self, list: &str) -> Result<ModelSet, Problem> {
        if list.is_empty() {
            return Ok(ModelSet::ANY);
        }
        list.split('|').try_fold(ModelSet::NONE, |set, name| {
            let model = self.models.get(name).ok_or_else(|| Problem::UnknownModel(name.to_owned()))?;
            Ok(set.with(*model))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,393216,8,G2\n";
    const POD: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n";

    fn error_of_pod(line: &str) -> String {
        Trace::parse(NODES, &format!("{POD}p0,1,0,1,1000,\n{line}\n")).unwrap_err().to_string()
    }

    #[test]
    fn a_trace() {
        let pods = format!(
            "{POD}p0,6000,1024,1,460,\r\np1,0,0,0,0,\np2,6000,1024,1,460,G2|P100\np3,6000,1024,1,460,\n"
        );
        let trace = Trace::parse(NODES, &pods).unwrap();
        assert_eq!((trace.capacity(), trace.pods()), (10_000, [0, 1, 2, 0].as_slice()));
        assert_eq!(trace.mean(), 345.0);
        assert!(trace.demand(2).models().has(0) && trace.demand(2).models().has(1));
        // The multigpu lists lack the last columns.
        assert!(Trace::parse(NODES, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1,1,8,1000\n").is_ok());
    }

    #[test]
    fn errors_name_the_line() {
        let errors = [
            ("p1,1000,,1,500,", "line 3: no value for memory_mib"),
            ("p1,1000,1,1,500", "line 3: 5 values for 6 columns"),
            ("", "line 3: the line is empty"),
            ("p1,-5,1,1,500,", "line 3: cpu_milli is -5: negative"),
            ("p1,1.5,1,1,500,", "line 3: cpu_milli is \"1.5\", not a whole number"),
            ("p1,1,1,1,0,", "line 3: 0 thousandths of a card; from 1 to 1000 are possible"),
            (
                "p1,1,1,2,500,",
                "line 3: 500 thousandths of each of 2 cards; only whole cards can be had together",
            ),
            ("p1,1,1,1,500,H100", "line 3: no node has cards of the model \"H100\""),
            ("p1,9999999999999,1,1,500,", "line 3: cpu_milli is 9999999999999: more than any machine has"),
        ];
        for (line, wanted) in errors {
            assert_eq!(error_of_pod(line), wanted);
        }
    }

    #[test]
    fn bad_files() {
        let error = |nodes: &str, pods: &str| Trace::parse(nodes, pods).unwrap_err().to_string();
        assert_eq!(error("", ""), "line 1: the file has no rows");
        assert_eq!(
            error("sn,cpu_milli,gpu,model\n", ""),
            "line 1: there is no column memory_mib; the first line must name it"
        );
        assert_eq!(error("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,0,T4", ""), "line 2: gpu is 0");
        assert_eq!(
            error("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,17,T4", ""),
            "line 2: 17 cards; from 1 to 16 are supported"
        );
        assert_eq!(error(NODES, POD), "line 2: the file has no rows");
        let many: String = (0..65).map(|model| format!("n,1,1,1,m{model}\n")).collect();
        let many = format!("sn,cpu_milli,memory_mib,gpu,model\n{many}");
        assert_eq!(error(&many, ""), "line 66: more than 64 models of cards");
    }
}
