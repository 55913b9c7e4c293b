//! Values known at planning time: of nodes, sets for `in`, results of functions only parsing a text.

use std::sync::{Arc, LazyLock};

use super::Planner;
use super::calls::{call_target, is_in_list};
use crate::check::checker::Reference;
use crate::check::declarations::{Function, Overload, is_runtime_type, named_type};
use crate::check::messages::NULL_VALUE;
use crate::check::validators::collect_children;
use crate::device::Device;
use crate::evaluate::machine::{Machine, Stop};
use crate::evaluate::map::Map;
use crate::evaluate::program::{CallSite, ConstantSet, Program};
use crate::evaluate::value::{Ref, Value, runtime_name};
use crate::evaluate::{cost, show};
use crate::syntax::ast::{Kind, Literal, NodeId, operators};

pub(super) static NO_DEVICE: LazyLock<Device> = LazyLock::new(Device::default);

pub(super) static NO_PROGRAM: LazyLock<Program> = LazyLock::new(Program::default);

/// Runs something outside any evaluation.
pub(super) fn with_machine<T>(run: impl FnOnce(&mut Machine<'static>) -> T) -> T {
    run(&mut Machine::new(&*NO_DEVICE, &NO_PROGRAM, u64::MAX))
}

pub(super) fn stop_reason(stop: Stop) -> String {
    match stop {
        Stop::Internal(reason) => reason.into(),
        Stop::Cost | Stop::Memory => "constant is too large".to_owned(),
    }
}

pub(super) const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

/// Functions only parsing a text: for a constant text, their result is computed at planning time.
pub(super) const PARSERS: [&str; 9] =
    ["quantity", "isQuantity", "semver", "isSemver", "ip", "isIP", "cidr", "isCIDR", "ip.isCanonical"];

impl Planner<'_> {
    pub(super) fn fold(&mut self) -> Result<(), String> {
        let mut open = vec![(self.ast.root, false)];
        let mut children = Vec::new();
        while let Some((node, seen)) = open.pop() {
            if seen {
                self.constants[node as usize] = self.constant(node)?;
                continue;
            }
            open.push((node, true));
            children.clear();
            collect_children(self.ast.kind(node), &mut children);
            open.extend(children.iter().rev().map(|child| (*child, false)));
        }
        Ok(())
    }

    pub(super) fn constant(&self, node: NodeId) -> Result<Option<Value<'static>>, String> {
        if let Reference::TypeName(name) = &self.checked.references[node as usize] {
            if **name == *NULL_VALUE {
                return Ok(Some(Value::Int(0)));
            }
            if !is_runtime_type(name) {
                return Err(format!("reference to undefined type: {name}"));
            }
            return Ok(named_type(name, self.checked.version).map(|found| Value::Type(runtime_name(&found))));
        }
        Ok(match self.ast.kind(node) {
            Kind::Literal(literal) => Some(match literal {
                Literal::Null => Value::Null,
                Literal::Bool(value) => Value::Bool(*value),
                Literal::Int(value) => Value::Int(*value),
                Literal::Uint(value) => Value::Uint(*value),
                Literal::Double(value) => Value::Double(*value),
                Literal::String(value) => Value::String(Ref::Shared(value.clone())),
                Literal::Bytes(value) => Value::Bytes(Ref::Shared(value.clone())),
            }),
            Kind::List { elements, optional } => {
                let Some(values) = self.all_constant(elements.iter()) else { return Ok(None) };
                for (value, optional) in values.iter().zip(optional) {
                    if *optional {
                        let shown = with_machine(|machine| show::show(machine, value));
                        return Ok(Some(Value::error(format!(
                            "cannot initialize optional list element from non-optional value {shown}"
                        ))));
                    }
                }
                Some(Value::list(values))
            }
            Kind::Map { entries } => {
                let keys = self.all_constant(entries.iter().map(|entry| &entry.key));
                let values = self.all_constant(entries.iter().map(|entry| &entry.value));
                let (Some(keys), Some(values)) = (keys, values) else { return Ok(None) };
                let mut map = Map::default();
                for ((key, value), entry) in keys.into_iter().zip(values).zip(entries) {
                    if entry.optional {
                        let shown =
                            with_machine(|machine| (show::show(machine, &key), show::show(machine, &value)));
                        return Ok(Some(Value::error(format!(
                            "cannot initialize optional entry '{}' from non-optional value {}",
                            shown.0, shown.1
                        ))));
                    }
                    map.set(key, value).map_err(|unhashable| stop_reason(unhashable.into()))?;
                }
                Some(Value::Map(Arc::new(map)))
            }
            Kind::Call { arguments, target, .. } => {
                let Reference::Function { function, overloads, .. } = &self.checked.references[node as usize]
                else {
                    return Ok(None);
                };
                self.constant_call(function, overloads, *target, arguments)?
            }
            _ => None,
        })
    }

    pub(super) fn all_constant<'n>(
        &self,
        nodes: impl Iterator<Item = &'n NodeId>,
    ) -> Option<Vec<Value<'static>>> {
        nodes.map(|node| self.constants[*node as usize].clone()).collect()
    }

    pub(super) fn constant_call(
        &self,
        function: &'static Function,
        overloads: &[&'static Overload],
        target: Option<NodeId>,
        arguments: &[NodeId],
    ) -> Result<Option<Value<'static>>, String> {
        if function.name == operators::IN
            && is_in_list(overloads)
            && let Some(Value::List(list)) = &self.constants[arguments[1] as usize]
            && list.len() == 0
        {
            return Ok(Some(Value::Bool(false)));
        }
        let (true, [argument], None) = (CONVERSIONS.contains(&function.name), arguments, target) else {
            return Ok(None);
        };
        let Some(value) = self.constants[*argument as usize].clone() else { return Ok(None) };
        let site = CallSite {
            function: function.name,
            arguments: 1,
            rule: cost::CostRule::Fixed(0),
            target: call_target(function, overloads),
        };
        match with_machine(|machine| machine.call_constant(&site, &[value])) {
            Ok(Value::Error(message)) => Err(message.to_string()),
            Ok(value) => Ok(Some(value)),
            Err(stop) => Err(stop_reason(stop)),
        }
    }

    /// The result, for a constant text, of a function only parsing a text, and its cost.
    pub(super) fn parsed_constant(
        &self,
        function: &'static Function,
        overloads: &[&'static Overload],
        operands: &[NodeId],
    ) -> Result<Option<(u64, Value<'static>)>, String> {
        if !PARSERS.contains(&function.name) {
            return Ok(None);
        }
        let Some(arguments) = self.all_constant(operands.iter()) else { return Ok(None) };
        let single = (overloads.len() == 1).then(|| overloads[0].id);
        let rule = cost::rule(function.name, single, self.checked.version);
        let target = call_target(function, overloads);
        let site = CallSite { function: function.name, arguments: 0, rule: cost::CostRule::Fixed(0), target };
        with_machine(|machine| {
            let cost = cost::cost(machine, rule, &arguments, None)?;
            machine.call_constant(&site, &arguments).map(|value| Some((cost, value))).map_err(stop_reason)
        })
    }

    /// The constants of a list as a set, where upstream makes one.
    pub(super) fn constant_set(&self, node: NodeId) -> Option<ConstantSet> {
        let Some(Value::List(list)) = &self.constants[node as usize] else { return None };
        let mut set = ConstantSet::default();
        for value in list.iter() {
            match value {
                Value::String(text) => {
                    set.strings.insert((**text).into());
                }
                Value::Bool(value) => set.bools[usize::from(*value)] = true,
                Value::Int(value) => {
                    set.ints.insert(*value);
                    set.doubles.insert((*value as f64 + 0.0).to_bits());
                    if let Ok(value) = u64::try_from(*value) {
                        set.uints.insert(value);
                    }
                }
                Value::Uint(value) => {
                    set.uints.insert(*value);
                    set.doubles.insert((*value as f64).to_bits());
                    if let Ok(value) = i64::try_from(*value) {
                        set.ints.insert(value);
                    }
                }
                Value::Double(value) => {
                    if !value.is_nan() {
                        set.doubles.insert((value + 0.0).to_bits());
                    }
                    set.ints.extend(crate::evaluate::map::lossless_int(*value));
                    set.uints.extend(crate::evaluate::map::lossless_uint(*value));
                }
                _ => return None,
            }
        }
        Some(set)
    }
}
