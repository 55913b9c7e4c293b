//! Combines operands into nodes.

use std::sync::Arc;

use super::Parser;
use super::open::{AND, Open, Operand, PRODUCT, RELATION, SUM};
use crate::syntax::ast::{Entry, Field, Kind, NodeId, operators};
use crate::syntax::lexer::TokenKind;
use crate::syntax::macros;
use crate::syntax::source::Issue;

impl Parser<'_> {
    pub(super) fn pop(&mut self) -> Operand {
        // Never empty: every caller has just completed an operand.
        self.operands.pop().unwrap_or(Operand { node: 0, depth: 0, start: 0 })
    }

    pub(super) fn apply_prefix(&mut self) -> Result<(), Issue> {
        if let Some(Open::Prefix { function, count, at, start }) = self.open.last() {
            let (function, count, at, start) = (*function, *count, *at, *start);
            self.open.pop();
            if count % 2 == 1 {
                let operand = self.pop();
                let kind =
                    Kind::Call { function: function.into(), target: None, arguments: vec![operand.node] };
                self.push(kind, at, start, operand.depth)?;
            }
        }
        Ok(())
    }

    pub(super) fn binary(&mut self, function: &'static str, level: u8, at: u32) -> Result<(), Issue> {
        // `a && b && c` becomes one call with three arguments; all others group to the left.
        let flat = level <= AND;
        self.reduce(if flat { level + 1 } else { level })?;
        self.at += 1;
        if flat
            && let Some(Open::Binary { level: open, terms, .. }) = self.open.last_mut()
            && *open == level
        {
            *terms += 1;
            return Ok(());
        }
        self.open.push(Open::Binary { function, level, at, terms: 1 });
        match level {
            RELATION => self.relations += 1,
            SUM | PRODUCT => self.calculations += 1,
            _ => {}
        }
        self.check_depth()
    }

    /// Completes the open binary operators of at least this level.
    pub(super) fn reduce(&mut self, level: u8) -> Result<(), Issue> {
        while let Some(Open::Binary { function, level: open, at, terms }) = self.open.last() {
            if *open < level {
                break;
            }
            let (function, open, at, terms) = (*function, *open, *at, *terms as usize);
            self.open.pop();
            match open {
                RELATION => self.relations -= 1,
                SUM | PRODUCT => self.calculations -= 1,
                _ => {}
            }
            let first = self.operands.len() - (terms + 1);
            let operands: Vec<Operand> = self.operands.drain(first..).collect();
            let deepest = operands.iter().map(|operand| operand.depth).max().unwrap_or(0);
            let depth = deepest + u32::from(open > AND);
            let start = operands[0].start;
            let arguments = operands.iter().map(|operand| operand.node).collect();
            self.push(Kind::Call { function: function.into(), target: None, arguments }, at, start, depth)?;
        }
        Ok(())
    }

    /// Completes binary operators and conditionals up to the enclosing bracket.
    pub(super) fn finish_expression(&mut self) -> Result<(), Issue> {
        loop {
            self.reduce(0)?;
            match self.open.last() {
                Some(Open::Alternative { at }) => {
                    let at = *at;
                    self.open.pop();
                    self.expressions -= 1;
                    let (otherwise, then, condition) = (self.pop(), self.pop(), self.pop());
                    let depth = 1 + otherwise.depth.max(then.depth).max(condition.depth);
                    let kind = Kind::Call {
                        function: operators::CONDITIONAL.into(),
                        target: None,
                        arguments: vec![condition.node, then.node, otherwise.node],
                    };
                    self.push(kind, at, condition.start, depth)?;
                }
                Some(Open::Condition { .. }) => return Err(self.unexpected("':'")),
                _ => return Ok(()),
            }
        }
    }

    /// A comma inside a bracket. Returns false for a trailing one, before the closing bracket.
    pub(super) fn comma(&mut self) -> Result<bool, Issue> {
        let after = self.kind_after(1);
        let trailing = match self.open.last() {
            Some(Open::List { .. }) => after == TokenKind::RightBracket,
            Some(Open::Map { .. } | Open::Message { .. }) => after == TokenKind::RightBrace,
            Some(Open::Call { .. } | Open::MemberCall { .. }) => false,
            _ => return Err(self.unexpected("<EOF>")),
        };
        if let Some(Open::Map { has_key: false, .. }) = self.open.last() {
            return Err(self.unexpected("':'"));
        }
        self.at += 1;
        if trailing {
            // The loop in `after_operand` continues with the closing bracket.
            return Ok(false);
        }
        match self.open.last() {
            Some(Open::List { .. } | Open::Map { .. }) => {
                let question = self.takes_question();
                if let Some(Open::List { optional, .. } | Open::Map { optional, .. }) = self.open.last_mut() {
                    optional.push(question);
                }
                if let Some(Open::Map { has_key, .. }) = self.open.last_mut() {
                    *has_key = false;
                }
            }
            Some(Open::Message { .. }) => {
                let field = self.field_name()?;
                if let Some(Open::Message { fields, .. }) = self.open.last_mut() {
                    fields.push(field);
                }
            }
            _ => {}
        }
        Ok(true)
    }

    pub(super) fn close(&mut self, kind: TokenKind) -> Result<(), Issue> {
        let wanted = match self.open.last() {
            Some(Open::Parenthesis { .. } | Open::Call { .. } | Open::MemberCall { .. }) => {
                TokenKind::RightParenthesis
            }
            Some(Open::List { .. } | Open::Index { .. }) => TokenKind::RightBracket,
            Some(Open::Map { has_key: true, .. } | Open::Message { .. }) => TokenKind::RightBrace,
            _ => TokenKind::End,
        };
        if kind != wanted || !self.open.last().is_some_and(Open::is_bracket) {
            return Err(self.unexpected("<EOF>"));
        }
        self.at += 1;
        match self.close_bracket() {
            Some(Open::Parenthesis { start }) => {
                if let Some(operand) = self.operands.last_mut() {
                    operand.start = start;
                }
                Ok(())
            }
            Some(Open::List { at, first, optional }) => {
                let (elements, depth) = self.take(first);
                self.push(Kind::List { elements, optional }, at, at, depth)
            }
            Some(Open::Map { at, first, optional, .. }) => {
                let (nodes, depth) = self.take(first);
                let entries = nodes
                    .chunks_exact(2)
                    .zip(optional)
                    .map(|(pair, optional)| Entry { key: pair[0], value: pair[1], optional })
                    .collect();
                self.push(Kind::Map { entries }, at, at, depth)
            }
            Some(Open::Message { at, start, name, first, fields }) => {
                let (nodes, depth) = self.take(first);
                let fields = fields
                    .into_iter()
                    .zip(nodes)
                    .map(|((name, optional), value)| Field { name, value, optional })
                    .collect();
                self.push(Kind::Message { name, fields }, at, start, depth)
            }
            Some(Open::Call { at, start, name, first }) => self.finish_call(at, start, name, None, first),
            Some(Open::MemberCall { at, name, first }) => self.finish_member_call(at, name, first),
            Some(Open::Index { at, optional }) => {
                let (index, operand) = (self.pop(), self.pop());
                let function = if optional { operators::OPTIONAL_INDEX } else { operators::INDEX };
                let kind = Kind::Call {
                    function: function.into(),
                    target: None,
                    arguments: vec![operand.node, index.node],
                };
                self.push(kind, at, operand.start, 1 + operand.depth.max(index.depth))
            }
            _ => Err(self.unexpected("<EOF>")),
        }
    }

    pub(super) fn take(&mut self, first: usize) -> (Vec<NodeId>, u32) {
        let operands: Vec<Operand> = self.operands.drain(first..).collect();
        let depth = operands.iter().map(|operand| operand.depth).max().unwrap_or(0);
        (operands.iter().map(|operand| operand.node).collect(), depth)
    }

    pub(super) fn finish_member_call(&mut self, at: u32, name: Arc<str>, first: usize) -> Result<(), Issue> {
        let target = self.operands[first - 1];
        self.finish_call(at, target.start, name, Some(target), first)
    }

    pub(super) fn finish_call(
        &mut self,
        at: u32,
        start: u32,
        name: Arc<str>,
        target: Option<Operand>,
        first: usize,
    ) -> Result<(), Issue> {
        let (arguments, mut depth) = self.take(first);
        if let Some(target) = target {
            self.operands.pop();
            depth = 1 + depth.max(target.depth);
        }
        let target = target.map(|target| target.node);
        let end = self.tokens[self.at - 1].end;
        if let Some(node) = macros::expand(&mut self.ast, at, &name, target, &arguments)? {
            self.ast.nodes[node as usize].start = start;
            self.ast.nodes[node as usize].end = end;
            self.operands.push(Operand { node, depth, start });
            return Ok(());
        }
        self.push(Kind::Call { function: name, target, arguments }, at, start, depth)
    }
}
