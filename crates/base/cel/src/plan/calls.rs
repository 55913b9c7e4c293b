//! Plans calls: instruction, implementation, and order of the arguments.

use super::{Planner, Scope, Task};
use crate::check::checker::Reference;
use crate::check::declarations::{Function, Overload};
use crate::evaluate::cost;
use crate::evaluate::program::{CallSite, Comparison, Op, OrderResult, PatternFunction, Target, Test};
use crate::evaluate::value::Value;
use crate::functions;
use crate::syntax::ast::{Kind, NodeId, operators};
use crate::values::pattern;

impl Planner<'_> {
    pub(super) fn call(
        &mut self,
        node: NodeId,
        scope: Scope,
        arguments: &[NodeId],
        target: Option<NodeId>,
    ) -> Result<(), String> {
        let Reference::Function { function, overloads, target: has_target } =
            self.checked.references[node as usize].clone()
        else {
            return Err("unresolved function".to_owned());
        };
        let mut operands: Vec<NodeId> = Vec::with_capacity(arguments.len() + 1);
        if has_target {
            operands.extend(target);
        }
        operands.extend(arguments);
        let value = |node: NodeId| Task::Node { node, scope, free: false };
        let single = (overloads.len() == 1).then(|| overloads[0].id);
        match function.name {
            operators::AND | operators::OR => {
                let and = function.name == operators::AND;
                let end = self.label();
                let mut tasks = vec![Task::Op(Op::LogicBegin(and))];
                for operand in operands {
                    tasks.push(value(operand));
                    tasks.push(Task::Op(Op::LogicTerm { and, end }));
                }
                tasks.push(Task::Label(end));
                self.queue(tasks);
            }
            operators::CONDITIONAL => self.conditional(&operands, scope),
            operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
                if !self.marks
                    && self.constants[operands[1] as usize].is_some()
                    && let Some(read) = self.read_of(operands[0], scope)? =>
            {
                let test = match function.name {
                    operators::EQUALS => Test::Equal,
                    operators::NOT_EQUALS => Test::NotEqual,
                    other => Test::Order(comparison(other)),
                };
                let rule = match test {
                    Test::Equal => cost::CostRule::Equals,
                    Test::NotEqual => cost::CostRule::TraverseSmaller,
                    Test::Order(_) => cost::rule(function.name, single, self.checked.version),
                };
                let constant = match self.constants[operands[1] as usize].clone() {
                    Some(value) => self.constant_index(value),
                    None => return Err("constant is missing".to_owned()),
                };
                self.program.ops.push(Op::Test { read, constant, test, rule });
            }
            operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
                if let Some((op, number)) = self.compared_order(function.name, &operands, scope)? =>
            {
                let Op::TestOrder { read, constant, parse_cost, site, .. } = op else {
                    return Err("unexpected instruction".to_owned());
                };
                let then = OrderResult::Compared(comparison(function.name), number);
                self.program.ops.push(Op::TestOrder { read, constant, parse_cost, site, then });
            }
            operators::EQUALS | operators::NOT_EQUALS => {
                let op = if function.name == operators::EQUALS { Op::Equal } else { Op::NotEqual };
                self.queue(vec![value(operands[0]), value(operands[1]), Task::Op(op)]);
            }
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS => {
                let comparison = comparison(function.name);
                let rule = cost::rule(function.name, single, self.checked.version);
                self.queue(vec![
                    value(operands[0]),
                    value(operands[1]),
                    Task::Op(Op::Compare { comparison, rule }),
                ]);
            }
            operators::NOT => self.queue(vec![value(operands[0]), Task::Op(Op::Not)]),
            operators::NOT_STRICTLY_FALSE => {
                self.queue(vec![value(operands[0]), Task::Op(Op::NotStrictlyFalse)]);
            }
            "or" | "orValue" => {
                let end = self.label();
                self.queue(vec![
                    value(operands[0]),
                    Task::Op(Op::OrElse { value: function.name == "orValue", end }),
                    value(operands[1]),
                    Task::Label(end),
                ]);
            }
            operators::IN if is_in_list(&overloads) => match self.constant_set(operands[1]) {
                Some(set) => {
                    self.program.sets.push(set);
                    let index = self.program.sets.len() as u32 - 1;
                    self.queue(vec![value(operands[0]), Task::Op(Op::InSet(index))]);
                }
                None => self.plain_call(function, &overloads, &operands, scope)?,
            },
            _ => match self.order_call(node, scope)? {
                Some(op) => self.program.ops.push(op),
                None => self.plain_call(function, &overloads, &operands, scope)?,
            },
        }
        Ok(())
    }

    /// `x.compareTo(quantity("…")) >= 0` and the like: the call and the number.
    pub(super) fn compared_order(
        &mut self,
        operator: &str,
        operands: &[NodeId],
        scope: Scope,
    ) -> Result<Option<(Op, i64)>, String> {
        if matches!(operator, operators::EQUALS | operators::NOT_EQUALS) {
            return Ok(None);
        }
        let Some(Value::Int(number)) = self.constants[operands[1] as usize] else { return Ok(None) };
        Ok(match self.order_call(operands[0], scope)? {
            Some(op @ Op::TestOrder { then: OrderResult::Number, .. }) => Some((op, number)),
            _ => None,
        })
    }

    /// `x.compareTo(quantity("…"))` and the like, where `x` is read directly.
    pub(super) fn order_call(&mut self, node: NodeId, scope: Scope) -> Result<Option<Op>, String> {
        if self.marks {
            return Ok(None);
        }
        let Reference::Function { function, overloads, target: true } =
            &self.checked.references[node as usize]
        else {
            return Ok(None);
        };
        let then = match function.name {
            "compareTo" => OrderResult::Number,
            "isGreaterThan" => OrderResult::Greater,
            "isLessThan" => OrderResult::Less,
            _ => return Ok(None),
        };
        let (function, overloads) = (*function, overloads.clone());
        let (Kind::Call { target: Some(target), arguments, .. }, [_]) =
            (self.ast.kind(node), overloads.as_slice())
        else {
            return Ok(None);
        };
        let (target, argument) = (*target, arguments[0]);
        let Reference::Function { function: parser, overloads: parsers, target: false } =
            &self.checked.references[argument as usize]
        else {
            return Ok(None);
        };
        let (parser, parsers) = (*parser, parsers.clone());
        let Kind::Call { arguments, .. } = self.ast.kind(argument) else { return Ok(None) };
        let Some((parse_cost, made)) = self.parsed_constant(parser, &parsers, arguments)? else {
            return Ok(None);
        };
        let Some(read) = self.read_of(target, scope)? else { return Ok(None) };
        let constant = self.constant_index(made);
        self.program.sites.push(CallSite {
            function: function.name,
            arguments: 2,
            rule: cost::CostRule::Fixed(1),
            target: call_target(function, &overloads),
        });
        let site = self.program.sites.len() as u32 - 1;
        Ok(Some(Op::TestOrder { read, constant, parse_cost, site, then }))
    }

    pub(super) fn conditional(&mut self, operands: &[NodeId], scope: Scope) {
        let (otherwise, end) = (self.label(), self.label());
        let mut tasks = vec![
            Task::Node { node: operands[0], scope, free: false },
            Task::Op(Op::Branch { otherwise, end }),
        ];
        for (index, branch) in operands[1..].iter().enumerate() {
            tasks.push(Task::Node { node: *branch, scope, free: true });
            if self.may_be_optional(*branch) {
                tasks.push(Task::Op(Op::Reread));
            }
            if index == 0 {
                tasks.push(Task::Op(Op::Jump(end)));
                tasks.push(Task::Label(otherwise));
            }
        }
        tasks.push(Task::Label(end));
        self.queue(tasks);
    }

    pub(super) fn plain_call(
        &mut self,
        function: &'static Function,
        overloads: &[&'static Overload],
        operands: &[NodeId],
        scope: Scope,
    ) -> Result<(), String> {
        let single = (overloads.len() == 1).then(|| overloads[0].id);
        let mut target = call_target(function, overloads);
        if let Some((cost, made)) = self.parsed_constant(function, overloads, operands)? {
            // The cost stays at its place; the work is done once.
            let index = self.constant_index(made);
            self.queue(vec![Task::Op(Op::Charge(cost)), Task::Op(Op::Constant(index))]);
            return Ok(());
        }
        let pattern_function = match function.name {
            "matches" => Some(PatternFunction::Matches),
            "find" => Some(PatternFunction::Find),
            "findAll" => Some(PatternFunction::FindAll),
            _ => None,
        };
        if let Some(pattern_function) = pattern_function
            && let Some(Some(Value::String(text))) =
                operands.get(1).map(|node| &self.constants[*node as usize])
        {
            target = Target::Pattern(pattern_function, Box::new(pattern::compile(text)?));
        }
        // Upstream's calls with any number of arguments stop at the first error, and the call is not counted.
        let stops_early = operands.len() >= 3
            || matches!(target, Target::Dispatch(_) | Target::Pattern(..))
            || single == Some("string_format");
        let site = CallSite {
            function: function.name,
            arguments: operands.len() as u32,
            rule: cost::rule(function.name, single, self.checked.version),
            target,
        };
        self.program.sites.push(site);
        let index = self.program.sites.len() as u32 - 1;
        let end = self.label();
        let mut tasks = Vec::new();
        for (position, operand) in operands.iter().enumerate() {
            tasks.push(Task::Node { node: *operand, scope, free: false });
            if stops_early && position + 1 < operands.len() {
                tasks.push(Task::Op(Op::Check { below: position as u32, end }));
            }
        }
        tasks.push(Task::Op(Op::Call(index)));
        tasks.push(Task::Label(end));
        self.queue(tasks);
        Ok(())
    }
}

pub(super) fn comparison(operator: &str) -> Comparison {
    match operator {
        operators::LESS => Comparison::Less,
        operators::LESS_EQUALS => Comparison::LessEquals,
        operators::GREATER => Comparison::Greater,
        _ => Comparison::GreaterEquals,
    }
}

pub(super) fn is_in_list(overloads: &[&'static Overload]) -> bool {
    matches!(overloads, [only] if only.id == "in_list")
}

pub(super) fn call_target(function: &'static Function, overloads: &[&'static Overload]) -> Target {
    if let Some(implementation) = functions::direct(function.name) {
        return Target::Direct(implementation);
    }
    let implementation =
        |overload: &'static Overload| functions::overload(overload.id).unwrap_or(functions::unreachable);
    match overloads {
        // Its argument types are not checked.
        [only] if function.name == "flatten" => Target::Direct(implementation(only)),
        [only] => Target::Overload(only, implementation(only)),
        [] => Target::Missing,
        _ => {
            let all = function.overloads.iter();
            Target::Dispatch(all.map(|overload| (overload, implementation(overload))).collect())
        }
    }
}
