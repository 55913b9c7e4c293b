//! A compiled selector.

use std::sync::Arc;

use crate::check::checker::{self, Checked};
use crate::check::estimate;
use crate::check::types::Type;
use crate::check::validators;
use crate::device::DeviceView;
use crate::environment::{Environment, Origin, is_1_37};
use crate::evaluate::machine::{Machine, Stop};
use crate::evaluate::program::Program;
use crate::evaluate::value::Value;
use crate::evaluate::{native, show};
use crate::plan::{self, Reads};
use crate::syntax::ast::Ast;
use crate::syntax::parser;
use crate::syntax::source;

/// Cost limit of an evaluation: CELSelectorExpressionMaxCost of Kubernetes.
pub const COST_LIMIT: u64 = 1_000_000;

/// Length limit of an expression in bytes: CELSelectorExpressionMaxLength of Kubernetes.
pub const LENGTH_LIMIT: usize = 10 * 1024;

/// Why an expression is not a selector. The texts are Kubernetes', except for syntax errors, whose texts come from its
/// parser generator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Syntax or type errors; one error per line with its position in the source.
    #[error("compilation failed: {0}")]
    Invalid(String),
    /// The result is neither a bool nor an attribute's value.
    #[error("must evaluate to bool or the unknown type, not {0}")]
    OutputType(String),
    /// A constant inside is an error by itself, such as `int("x")`.
    #[error("program instantiation failed: {0}")]
    Constant(String),
    /// [`Selector::compile_new`]: longer than [`LENGTH_LIMIT`].
    #[error("Too long: may not be more than {LENGTH_LIMIT} bytes")]
    TooLong,
    /// [`Selector::compile_new`]: possible cost above [`COST_LIMIT`], whatever the cost for real devices.
    #[error("Forbidden: too complex, exceeds cost limit")]
    TooComplex {
        /// Upper bound of an evaluation's cost.
        estimate: u64,
    },
}

/// Why a selector has no answer for a device. The texts are Kubernetes'; kube-scheduler puts
/// `CEL runtime error: ` in front and gives up the whole scheduling attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// The expression gave an error, such as `no such key: x`.
    #[error("{0}")]
    Failed(String),
    /// The result is an attribute's value other than a bool.
    #[error("CEL result of type {type_name} could not be converted to bool: {reason}")]
    NotBool {
        /// Name of the value's CEL type.
        type_name: String,
        /// Kubernetes' error text.
        reason: String,
    },
    /// The evaluation cost more than [`COST_LIMIT`].
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// The evaluation would have allocated or compared too much. Kubernetes has no such limit; there, such a selector
    /// would take hundreds of megabytes, or a second or more, for each device.
    #[error("operation cancelled: memory limit exceeded")]
    MemoryLimit,
    /// Kubernetes' library panics here, which also ends the attempt there.
    #[error("internal error: {0}")]
    Internal(String),
    /// The device itself cannot be evaluated, such as `attribute x: unsupported attribute value`.
    #[error("{0}")]
    Device(String),
}

/// The answer for one device and its cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// Whether the device matches.
    pub result: Result<bool, EvaluationError>,
    /// Cost as counted by Kubernetes; 0 if nothing was evaluated.
    pub cost: u64,
}

/// The value of a part of the expression for one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubExpression {
    /// Start of its text in the source, in bytes.
    pub start: usize,
    /// End of its text.
    pub end: usize,
    /// Its value in CEL's syntax, or `error: …`. For a part in a loop, the last value.
    pub value: String,
}

#[derive(Debug)]
struct Compiled {
    source: String,
    environment: Environment,
    ast: Ast,
    checked: Checked,
    program: Program,
    reads: Reads,
    output: String,
}

/// A compiled CEL selector for devices: cheap to clone, to be shared between threads and used for any number of devices.
///
/// ```
/// use std::collections::BTreeMap;
/// use tessera_cel::{Device, PublishedAttribute, Selector};
///
/// let selector = Selector::compile(
///     r#"device.driver == "gpu.tessera.dev" && device.capacity["gpu.tessera.dev"].memory.compareTo(quantity("40Gi")) >= 0"#,
/// )?;
/// let device = Device::new("gpu.tessera.dev")
///     .with_attributes(&BTreeMap::from([("type".to_owned(), PublishedAttribute::String("gpu".to_owned()))]), false)
///     .with_capacity(&BTreeMap::from([("memory".to_owned(), "80Gi".to_owned())]))?;
/// assert!(selector.matches(&device)?);
/// assert!(selector.reads().driver);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Selector(Arc<Compiled>);

impl Selector {
    /// Compiles a stored expression, like kube-scheduler of the newest known Kubernetes for objects already accepted by the
    /// API server: without a cost limit.
    ///
    /// # Errors
    /// kube-scheduler would refuse the expression too.
    pub fn compile(expression: &str) -> Result<Self, CompileError> {
        Self::compile_with(expression, Environment::default())
    }

    /// Compiles a stored expression as kube-scheduler of this release does.
    ///
    /// # Errors
    /// kube-scheduler would refuse the expression too.
    pub fn compile_with(expression: &str, environment: Environment) -> Result<Self, CompileError> {
        Self::compile_as(expression, environment, Origin::Stored)
    }

    /// Compiles a new expression, like the API server of this release for a new object or a changed
    /// expression.
    ///
    /// # Errors
    /// The API server would refuse the expression: also if too long, possibly too expensive, or if using attributes as lists
    /// or `includes` without the gate DRAListTypeAttributes.
    pub fn compile_new(expression: &str, environment: Environment) -> Result<Self, CompileError> {
        if expression.len() > LENGTH_LIMIT {
            return Err(CompileError::TooLong);
        }
        let selector = Self::compile_as(expression, environment, Origin::New)?;
        let estimate = selector.max_cost();
        if estimate > COST_LIMIT {
            return Err(CompileError::TooComplex { estimate });
        }
        Ok(selector)
    }

    fn compile_as(expression: &str, environment: Environment, origin: Origin) -> Result<Self, CompileError> {
        let invalid = |issues: &[source::Issue]| CompileError::Invalid(source::render(expression, issues));
        let ast = parser::parse(expression, environment.version).map_err(|issue| invalid(&[issue]))?;
        let checked = checker::check(&ast, environment, origin).map_err(|issues| invalid(&issues))?;
        let issues = validators::validate(&ast, &checked);
        if !issues.is_empty() {
            return Err(invalid(&issues));
        }
        let output = &checked.types[ast.root as usize];
        let mut shown = output.to_string();
        source::truncate(&mut shown);
        if !is_output(output, environment, origin) {
            return Err(CompileError::OutputType(shown));
        }
        let (program, reads) = plan::plan(&ast, &checked, false).map_err(|mut reason| {
            source::truncate(&mut reason);
            CompileError::Constant(reason)
        })?;
        Ok(Selector(Arc::new(Compiled {
            source: expression.to_owned(),
            environment,
            ast,
            checked,
            program,
            reads,
            output: shown,
        })))
    }

    /// Upper bound of its cost for any device, as estimated by the API server; `u64::MAX` without a bound.
    pub fn max_cost(&self) -> u64 {
        estimate::most(&self.0.ast, &self.0.checked)
    }

    /// The expression.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The environment of its answers.
    pub fn environment(&self) -> Environment {
        self.0.environment
    }

    /// Its reads of a device: an answer can be reused for another device with equal values for all reads.
    pub fn reads(&self) -> &Reads {
        &self.0.reads
    }

    /// The static type of the expression, in Kubernetes' spelling.
    pub fn output_type(&self) -> &str {
        &self.0.output
    }

    /// Whether a device matches.
    ///
    /// # Errors
    /// The expression has no answer for this device, see [`EvaluationError`].
    pub fn matches(&self, device: &dyn DeviceView) -> Result<bool, EvaluationError> {
        self.evaluate(device).result
    }

    /// Whether a device matches, and the cost.
    pub fn evaluate(&self, device: &dyn DeviceView) -> Evaluation {
        if let Some(defect) = device.defect() {
            return Evaluation { result: Err(EvaluationError::Device(defect.to_owned())), cost: 0 };
        }
        let mut machine = Machine::new(device, &self.0.program, COST_LIMIT);
        let result = machine.run();
        let result = conclude(result);
        Evaluation { result, cost: machine.cost() }
    }

    /// The values of the expression's parts for one device, in order of computation; parts
    /// not needed are missing.
    pub fn explain(&self, device: &dyn DeviceView) -> Vec<SubExpression> {
        // Cannot fail: compilation without marks succeeded.
        let Ok((program, _)) = plan::plan(&self.0.ast, &self.0.checked, true) else { return Vec::new() };
        let mut parts: Vec<SubExpression> = Vec::new();
        let mut place_of = std::collections::HashMap::new();
        let mut machine = Machine::new(device, &program, COST_LIMIT);
        // An error result is the last part's value.
        let _ = machine.trace(&mut |node, machine, value| {
            let node_text = &self.0.ast.nodes[node as usize];
            let place = *place_of.entry(node).or_insert_with(|| {
                parts.push(SubExpression {
                    start: node_text.start as usize,
                    end: node_text.end as usize,
                    value: String::new(),
                });
                parts.len() - 1
            });
            parts[place].value = show::literal(machine, value);
        });
        parts
    }
}

/// Whether a selector may have this type: a bool's, or an attribute's type, because its value may be a bool.
fn is_output(output: &Type, environment: Environment, origin: Origin) -> bool {
    let dynamic = environment.attributes_are_dyn(origin);
    if is_1_37(environment.version) {
        return *output == Type::Bool || *output == if dynamic { Type::Dyn } else { Type::Any };
    }
    matches!(output, Type::Bool | Type::Any) || (dynamic && matches!(output, Type::Dyn))
}

fn conclude(result: Result<Value<'_>, Stop>) -> Result<bool, EvaluationError> {
    let value = match result {
        Ok(value) => value,
        Err(Stop::Cost) => return Err(EvaluationError::CostLimit),
        Err(Stop::Memory) => return Err(EvaluationError::MemoryLimit),
        Err(Stop::Internal(reason)) => return Err(EvaluationError::Internal(reason.into())),
    };
    let failed = |message: &str| {
        let mut message = message.to_owned();
        source::truncate(&mut message);
        EvaluationError::Failed(message)
    };
    let mut inner = &value;
    while let Value::Optional(Some(content)) = inner {
        inner = content;
    }
    match inner {
        Value::Bool(matches) => Ok(*matches),
        Value::Error(message) => Err(failed(message)),
        other => Err(EvaluationError::NotBool {
            type_name: value.type_name().to_owned(),
            reason: native::refusal(other, "bool"),
        }),
    }
}
