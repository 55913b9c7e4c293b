//! One instruction.

use super::comparisons::{compare, in_set};
use super::{Machine, Stop};
use crate::evaluate::cost::{self, CostRule};
use crate::evaluate::program::Op;
use crate::evaluate::value::Value;

impl<'v> Machine<'v> {
    /// Runs one instruction and returns the next one's address; `None` at the end.
    #[inline(always)]
    pub(super) fn step(&mut self, at: u32) -> Result<Option<u32>, Stop> {
        let program = self.program;
        let next = at + 1;
        let goto = match &program.ops[at as usize] {
            Op::Constant(index) => {
                self.stack.push(program.constants[*index as usize].borrowed());
                next
            }
            Op::Read { read, free } => {
                let (value, cost) = self.read(*read);
                self.stack.push(value);
                self.charge_steps(if *free { cost - 1 } else { cost })?;
                next
            }
            Op::Test { read, constant, test, rule } => {
                let (value, cost) = self.read(*read);
                self.charge_steps(cost)?;
                let value = self.test(value, &program.constants[*constant as usize], *test, *rule)?;
                self.stack.push(value);
                next
            }
            Op::TestOrder { read, constant, parse_cost, site, then } => {
                let (value, cost) = self.read(*read);
                self.charge_steps(cost)?;
                self.charge(*parse_cost)?;
                self.charge(1)?;
                let constant = &program.constants[*constant as usize];
                let value = self.test_order(value, constant, &program.sites[*site as usize], *then)?;
                self.stack.push(value);
                next
            }
            Op::Device { free } => {
                self.stack.push(Value::Device);
                self.charge_steps(u64::from(!*free))?;
                next
            }
            Op::Variable { slot, free } => match self.read_variable(*slot, *free)? {
                Some(lazy) => {
                    self.rare().returns.push(at);
                    lazy
                }
                None => next,
            },
            Op::Equal => {
                let two = self.pop();
                let operands = [self.pop(), two];
                let cost = cost::cost(self, CostRule::Equals, &operands, None).unwrap_or(1);
                self.charge(cost)?;
                let [one, two] = operands;
                let value = self.equal(one, two, false)?;
                self.stack.push(value);
                next
            }
            Op::NotEqual => {
                let two = self.pop();
                let operands = [self.pop(), two];
                let cost = cost::cost(self, CostRule::TraverseSmaller, &operands, None).unwrap_or(1);
                self.charge(cost)?;
                let [one, two] = operands;
                let value = self.equal(one, two, true)?;
                self.stack.push(value);
                next
            }
            Op::Compare { comparison, rule } => {
                let two = self.pop();
                let operands = [self.pop(), two];
                let cost = match rule {
                    CostRule::Fixed(cost) => *cost,
                    rule => cost::cost(self, *rule, &operands, None).unwrap_or(1),
                };
                self.charge(cost)?;
                let [one, two] = operands;
                self.stack.push(compare(*comparison, one, two));
                next
            }
            Op::LogicBegin(and) => {
                self.stack.push(Value::Bool(*and));
                next
            }
            Op::LogicTerm { and, end } => self.logic_term(*and, *end).unwrap_or(next),
            Op::Not => {
                self.charge(1)?;
                let value = match self.pop() {
                    Value::Bool(value) => Value::Bool(!value),
                    Value::Error(message) => Value::Error(message),
                    _ => Value::error("no such overload"),
                };
                self.stack.push(value);
                next
            }
            Op::NotStrictlyFalse => {
                self.charge(1)?;
                let value = self.pop();
                self.stack.push(if matches!(value, Value::Bool(_)) { value } else { Value::Bool(true) });
                next
            }
            Op::Call(site) => {
                self.call(&program.sites[*site as usize])?;
                next
            }
            Op::Qualify { key, optional, test, chained, end } => {
                if self.top_is_error() {
                    *end
                } else {
                    let key = program.constants[*key as usize].borrowed();
                    self.qualify(&key, *optional, *test, *chained, *end)?.unwrap_or(next)
                }
            }
            Op::QualifyBy { optional, chained, end } => {
                self.qualify_by(*optional, *chained, *end)?.unwrap_or(next)
            }
            Op::ChainBegin { end } => match self.stack.last() {
                Some(Value::Optional(Some(inner))) => {
                    let inner = self.reread(inner);
                    self.pop();
                    let failed = inner.is_error();
                    self.stack.push(inner);
                    self.rare().chains.push(!failed);
                    if failed { *end } else { next }
                }
                Some(Value::Optional(None) | Value::Error(_)) => {
                    self.rare().chains.push(false);
                    *end
                }
                _ => {
                    self.rare().chains.push(false);
                    next
                }
            },
            Op::ChainEnd { chained, free } => {
                if *chained && self.rare().chains.pop() == Some(true) && !self.top_is_error() {
                    let value = self.pop();
                    self.stack.push(Value::some(value));
                }
                if !free {
                    self.charge(1)?;
                }
                next
            }
            Op::TestEnd { refund } => {
                if let Some(Value::Optional(found)) = self.stack.last() {
                    let present = found.is_some();
                    self.pop();
                    self.stack.push(Value::Bool(present));
                }
                if *refund {
                    self.cost = self.cost.saturating_sub(1);
                }
                next
            }
            Op::Reread => {
                if let Some(Value::Optional(Some(inner))) = self.stack.last() {
                    let inner = self.reread(inner);
                    self.pop();
                    self.stack.push(Value::some(inner));
                }
                next
            }
            Op::Jump(to) => *to,
            Op::Branch { otherwise, end } => match self.pop() {
                Value::Bool(true) => next,
                Value::Bool(false) => *otherwise,
                Value::Error(message) => {
                    self.stack.push(Value::Error(message));
                    *end
                }
                _ => {
                    self.stack.push(Value::error("no such overload"));
                    *end
                }
            },
            Op::Check { below, end } => self.check(*below, *end).unwrap_or(next),
            Op::CheckOptional { below, end, entry } => {
                self.check_optional(*below, *end, *entry).unwrap_or(next)
            }
            Op::CheckField { below, end, name } => self.check_field(*below, *end, name).unwrap_or(next),
            Op::MakeList { count } => {
                self.make_list(*count, None)?;
                next
            }
            Op::MakeListOptional { count, optional } => {
                self.make_list(*count, Some(optional))?;
                next
            }
            Op::MakeMap { count, optional } => {
                self.make_map(*count, optional.as_deref())?;
                next
            }
            Op::MakeMessage { message, fields } => {
                self.make_message(message, fields)?;
                next
            }
            Op::Charge(cost) => {
                self.charge(*cost)?;
                next
            }
            Op::Fail(message) => {
                self.stack.push(Value::Error(message.clone()));
                next
            }
            Op::InSet(set) => {
                let value = self.pop();
                let found = in_set(&program.sets[*set as usize], value)?;
                self.stack.push(found);
                next
            }
            Op::OrElse { value, end } => match self.stack.last() {
                Some(Value::Optional(None)) => {
                    self.pop();
                    next
                }
                Some(Value::Optional(Some(inner))) if *value => {
                    let inner = (**inner).clone();
                    self.pop();
                    self.stack.push(inner);
                    *end
                }
                Some(Value::Optional(Some(_)) | Value::Error(_)) => *end,
                _ => {
                    if self.is_1_37() {
                        self.pop();
                        self.stack.push(Value::error("no such overload"));
                    }
                    *end
                }
            },
            Op::FoldBegin { two, accumulator, end } => {
                self.fold_begin(*two, *accumulator, *end)?.unwrap_or(next)
            }
            Op::FoldNext { first, second, done } => self.fold_next(*first, *second, *done).unwrap_or(next),
            Op::FoldCondition { done } => match self.pop() {
                Value::Bool(false) => *done,
                _ => next,
            },
            Op::Store(slot) => {
                let value = self.pop();
                self.slots[*slot as usize] = Some(value);
                next
            }
            Op::FoldDone => {
                self.rare().loops.pop();
                next
            }
            Op::Freeze => {
                self.freeze();
                next
            }
            Op::Return(slot) => {
                let value = self.pop();
                let value = self.grow_if_empty(value);
                self.slots[*slot as usize] = Some(value);
                // Back to the read, where the value is found now.
                self.rare().returns.pop().unwrap_or(next)
            }
            Op::Forget(slot) => {
                self.slots[*slot as usize] = None;
                next
            }
            Op::Mark(_) => next,
            Op::Halt => return Ok(None),
        };
        Ok(Some(goto))
    }
}
