//! The macros of the environment: calls replaced by the parser with comprehensions and conditionals.
//!
//! Standard macros, two-variable comprehensions, `cel.bind`, `optMap`, `optFlatMap` and `sortBy`, expanded as in cel-go
//! 0.26.

mod copy;

use std::sync::Arc;

use crate::syntax::ast::{Ast, Comprehension, Kind, Literal, NodeId, operators};
use crate::syntax::source::Issue;
use copy::copy;

/// The accumulator's name, impossible in a source text.
pub(crate) const ACCUMULATOR: &str = "@result";
const OLD_ACCUMULATOR: &str = "__result__";
/// The iteration variable of comprehensions only binding a name.
const UNUSED: &str = "#unused";
const SORT_INPUT: &str = "@__sortBy_input__";

/// Makes nodes at the position of the macro call; they have no text of their own.
struct Builder<'a> {
    ast: &'a mut Ast,
    at: u32,
}

impl Builder<'_> {
    fn add(&mut self, kind: Kind) -> NodeId {
        self.ast.add(kind, self.at, 0, 0)
    }

    fn literal(&mut self, literal: Literal) -> NodeId {
        self.add(Kind::Literal(literal))
    }

    fn name(&mut self, name: &str) -> NodeId {
        self.add(Kind::Identifier(name.into()))
    }

    fn accumulator(&mut self) -> NodeId {
        self.name(ACCUMULATOR)
    }

    fn call(&mut self, function: &str, arguments: Vec<NodeId>) -> NodeId {
        self.add(Kind::Call { function: function.into(), target: None, arguments })
    }

    fn member_call(&mut self, function: &str, target: NodeId, arguments: Vec<NodeId>) -> NodeId {
        self.add(Kind::Call { function: function.into(), target: Some(target), arguments })
    }

    fn list(&mut self, elements: Vec<NodeId>) -> NodeId {
        let optional = vec![false; elements.len()];
        self.add(Kind::List { elements, optional })
    }

    /// `name` bound to `initial` in `result`.
    fn bind(&mut self, name: &Arc<str>, initial: NodeId, result: NodeId) -> NodeId {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.name(name);
        self.add(Kind::Comprehension(Box::new(Comprehension {
            range,
            variable: UNUSED.into(),
            second_variable: None,
            accumulator: name.clone(),
            initial,
            condition,
            step,
            result,
        })))
    }
}

/// The expansion of a call; `None` if not a macro call.
pub(crate) fn expand(
    ast: &mut Ast,
    at: u32,
    function: &str,
    target: Option<NodeId>,
    arguments: &[NodeId],
) -> Result<Option<NodeId>, Issue> {
    let mut builder = Builder { ast, at };
    let Some(target) = target else {
        return if function == "has" && arguments.len() == 1 {
            has(&mut builder, arguments[0]).map(Some)
        } else {
            Ok(None)
        };
    };
    let node = match (function, arguments) {
        ("all" | "exists" | "exists_one", [variable, body]) => {
            let variables = one_variable(&builder, *variable, "argument must be a simple name")?;
            quantifier(&mut builder, function, target, variables, *body)
        }
        ("all" | "exists" | "exists_one" | "existsOne", [first, second, body]) => {
            let variables = two_variables(&builder, *first, *second)?;
            quantifier(&mut builder, function, target, variables, *body)
        }
        ("map", [variable, rest @ ..]) if matches!(rest.len(), 1 | 2) => {
            let variables = one_variable(&builder, *variable, "argument is not an identifier")?;
            let (filter, body) = filter_and_body(rest);
            transform(&mut builder, target, variables, filter, body)
        }
        ("filter", [variable, condition]) => {
            let variables = one_variable(&builder, *variable, "argument is not an identifier")?;
            transform(&mut builder, target, variables, Some(*condition), *variable)
        }
        ("transformList", [first, second, rest @ ..]) if matches!(rest.len(), 1 | 2) => {
            let variables = two_variables(&builder, *first, *second)?;
            let (filter, body) = filter_and_body(rest);
            transform(&mut builder, target, variables, filter, body)
        }
        ("transformMap" | "transformMapEntry", [first, second, rest @ ..]) if matches!(rest.len(), 1 | 2) => {
            let variables = two_variables(&builder, *first, *second)?;
            let (filter, body) = filter_and_body(rest);
            transform_map(&mut builder, target, variables, filter, body, function == "transformMapEntry")
        }
        ("optMap" | "optFlatMap", [variable, body]) => {
            optional_map(&mut builder, function, target, *variable, *body)?
        }
        ("sortBy", [_, _]) => sort_by(&mut builder, target, arguments)?,
        ("bind", [variable, initial, body]) if is_identifier(&builder, target, "cel") => {
            let name = identifier(&builder, *variable).ok_or_else(|| {
                fail(&builder, *variable, "cel.bind() variable names must be simple identifiers")
            })?;
            builder.bind(&name, *initial, *body)
        }
        _ => return Ok(None),
    };
    Ok(Some(node))
}

type Variables = (Arc<str>, Option<Arc<str>>);

fn fail(builder: &Builder<'_>, node: NodeId, message: &str) -> Issue {
    Issue::at(builder.ast.nodes[node as usize].at, message)
}

fn identifier(builder: &Builder<'_>, node: NodeId) -> Option<Arc<str>> {
    match builder.ast.kind(node) {
        Kind::Identifier(name) => Some(name.clone()),
        _ => None,
    }
}

fn is_identifier(builder: &Builder<'_>, node: NodeId, name: &str) -> bool {
    matches!(builder.ast.kind(node), Kind::Identifier(found) if &**found == name)
}

fn filter_and_body(rest: &[NodeId]) -> (Option<NodeId>, NodeId) {
    match rest {
        [filter, body] => (Some(*filter), *body),
        _ => (None, rest[0]),
    }
}

fn one_variable(builder: &Builder<'_>, node: NodeId, message: &str) -> Result<Variables, Issue> {
    let name = identifier(builder, node).ok_or_else(|| fail(builder, node, message))?;
    refuse_accumulator(builder, node, &name)?;
    Ok((name, None))
}

fn two_variables(builder: &Builder<'_>, first: NodeId, second: NodeId) -> Result<Variables, Issue> {
    let message = "argument must be a simple name";
    let first_name = identifier(builder, first).ok_or_else(|| fail(builder, first, message))?;
    let second_name = identifier(builder, second).ok_or_else(|| fail(builder, second, message))?;
    if first_name == second_name {
        return Err(fail(builder, second, &format!("duplicate variable name: {first_name}")));
    }
    refuse_accumulator(builder, first, &first_name)?;
    refuse_accumulator(builder, second, &second_name)?;
    Ok((first_name, Some(second_name)))
}

fn refuse_accumulator(builder: &Builder<'_>, node: NodeId, name: &str) -> Result<(), Issue> {
    if name == ACCUMULATOR || name == OLD_ACCUMULATOR {
        return Err(fail(builder, node, "iteration variable overwrites accumulator variable"));
    }
    Ok(())
}

fn has(builder: &mut Builder<'_>, argument: NodeId) -> Result<NodeId, Issue> {
    match builder.ast.kind(argument).clone() {
        Kind::Select { operand, field, .. } => {
            Ok(builder.add(Kind::Select { operand, field, test_only: true }))
        }
        _ => Err(fail(builder, argument, "invalid argument to has() macro")),
    }
}

fn comprehension(
    builder: &mut Builder<'_>,
    range: NodeId,
    variables: Variables,
    [initial, condition, step, result]: [NodeId; 4],
) -> NodeId {
    builder.add(Kind::Comprehension(Box::new(Comprehension {
        range,
        variable: variables.0,
        second_variable: variables.1,
        accumulator: ACCUMULATOR.into(),
        initial,
        condition,
        step,
        result,
    })))
}

fn quantifier(
    builder: &mut Builder<'_>,
    function: &str,
    range: NodeId,
    variables: Variables,
    predicate: NodeId,
) -> NodeId {
    let parts = match function {
        "all" => {
            let initial = builder.literal(Literal::Bool(true));
            let accumulator = builder.accumulator();
            let condition = builder.call(operators::NOT_STRICTLY_FALSE, vec![accumulator]);
            let accumulator = builder.accumulator();
            let step = builder.call(operators::AND, vec![accumulator, predicate]);
            [initial, condition, step, builder.accumulator()]
        }
        "exists" => {
            let initial = builder.literal(Literal::Bool(false));
            let accumulator = builder.accumulator();
            let not = builder.call(operators::NOT, vec![accumulator]);
            let condition = builder.call(operators::NOT_STRICTLY_FALSE, vec![not]);
            let accumulator = builder.accumulator();
            let step = builder.call(operators::OR, vec![accumulator, predicate]);
            [initial, condition, step, builder.accumulator()]
        }
        _ => {
            let initial = builder.literal(Literal::Int(0));
            let condition = builder.literal(Literal::Bool(true));
            let (accumulator, one) = (builder.accumulator(), builder.literal(Literal::Int(1)));
            let sum = builder.call(operators::ADD, vec![accumulator, one]);
            let accumulator = builder.accumulator();
            let step = builder.call(operators::CONDITIONAL, vec![predicate, sum, accumulator]);
            let (accumulator, one) = (builder.accumulator(), builder.literal(Literal::Int(1)));
            [initial, condition, step, builder.call(operators::EQUALS, vec![accumulator, one])]
        }
    };
    comprehension(builder, range, variables, parts)
}

fn transform(
    builder: &mut Builder<'_>,
    range: NodeId,
    variables: Variables,
    filter: Option<NodeId>,
    body: NodeId,
) -> NodeId {
    let initial = builder.list(Vec::new());
    let condition = builder.literal(Literal::Bool(true));
    let accumulator = builder.accumulator();
    let element = builder.list(vec![body]);
    let step = builder.call(operators::ADD, vec![accumulator, element]);
    let step = filtered(builder, filter, step);
    let result = builder.accumulator();
    comprehension(builder, range, variables, [initial, condition, step, result])
}

fn filtered(builder: &mut Builder<'_>, filter: Option<NodeId>, step: NodeId) -> NodeId {
    match filter {
        Some(filter) => {
            let accumulator = builder.accumulator();
            builder.call(operators::CONDITIONAL, vec![filter, step, accumulator])
        }
        None => step,
    }
}

fn transform_map(
    builder: &mut Builder<'_>,
    range: NodeId,
    variables: Variables,
    filter: Option<NodeId>,
    body: NodeId,
    entries: bool,
) -> NodeId {
    let initial = builder.add(Kind::Map { entries: Vec::new() });
    let condition = builder.literal(Literal::Bool(true));
    let accumulator = builder.accumulator();
    let arguments = if entries {
        vec![accumulator, body]
    } else {
        let key = builder.name(&variables.0);
        vec![accumulator, key, body]
    };
    let step = builder.call(operators::MAP_INSERT, arguments);
    let step = filtered(builder, filter, step);
    let result = builder.accumulator();
    comprehension(builder, range, variables, [initial, condition, step, result])
}

fn optional_map(
    builder: &mut Builder<'_>,
    function: &str,
    target: NodeId,
    variable: NodeId,
    body: NodeId,
) -> Result<NodeId, Issue> {
    let name = identifier(builder, variable).ok_or_else(|| {
        fail(builder, variable, &format!("{function}() variable name must be a simple identifier"))
    })?;
    let has_value = builder.member_call("hasValue", target, Vec::new());
    let copied = copy(builder, target)?;
    let value = builder.member_call("value", copied, Vec::new());
    let bound = builder.bind(&name, value, body);
    let then = if function == "optMap" { builder.call("optional.of", vec![bound]) } else { bound };
    let otherwise = builder.call("optional.none", Vec::new());
    Ok(builder.call(operators::CONDITIONAL, vec![has_value, then, otherwise]))
}

fn sort_by(builder: &mut Builder<'_>, target: NodeId, arguments: &[NodeId]) -> Result<NodeId, Issue> {
    if !matches!(
        builder.ast.kind(target),
        Kind::List { .. }
            | Kind::Select { .. }
            | Kind::Identifier(_)
            | Kind::Comprehension(_)
            | Kind::Call { .. }
    ) {
        let message =
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err(fail(builder, target, message));
    }
    let variables = one_variable(builder, arguments[0], "argument is not an identifier")?;
    let input = builder.name(SORT_INPUT);
    let keys = transform(builder, input, variables, None, arguments[1]);
    let input = builder.name(SORT_INPUT);
    let sorted = builder.member_call(operators::SORT_BY_KEYS, input, vec![keys]);
    Ok(builder.bind(&SORT_INPUT.into(), target, sorted))
}
