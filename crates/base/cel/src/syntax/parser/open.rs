//! The parser's open constructs, and operator precedence.

use std::sync::Arc;

use crate::syntax::ast::{NodeId, operators};
use crate::syntax::lexer::TokenKind;

/// An operand: its node, its depth in upstream's walk, and the start of its text.
#[derive(Clone, Copy)]
pub(super) struct Operand {
    pub(super) node: NodeId,
    pub(super) depth: u32,
    pub(super) start: u32,
}

/// An open construct.
pub(super) enum Open {
    /// `!` or `-`, `count` times in a row, before an operand.
    Prefix {
        function: &'static str,
        count: u32,
        at: u32,
        start: u32,
    },
    /// A binary operator after its left operand. For `&&` and `||` all terms so far are operands.
    Binary {
        function: &'static str,
        level: u8,
        at: u32,
        terms: u32,
    },
    /// `condition ?`
    Condition {
        at: u32,
    },
    /// `condition ? value :`
    Alternative {
        at: u32,
    },
    Parenthesis {
        start: u32,
    },
    List {
        at: u32,
        first: usize,
        optional: Vec<bool>,
    },
    Map {
        at: u32,
        first: usize,
        optional: Vec<bool>,
        has_key: bool,
    },
    Message {
        at: u32,
        start: u32,
        name: Arc<str>,
        first: usize,
        fields: Vec<(Arc<str>, bool)>,
    },
    Call {
        at: u32,
        start: u32,
        name: Arc<str>,
        first: usize,
    },
    MemberCall {
        at: u32,
        name: Arc<str>,
        first: usize,
    },
    Index {
        at: u32,
        optional: bool,
    },
}

pub(super) const OR: u8 = 1;

pub(super) const AND: u8 = 2;

pub(super) const RELATION: u8 = 3;

pub(super) const SUM: u8 = 4;

pub(super) const PRODUCT: u8 = 5;

pub(super) fn binary_operator(kind: TokenKind) -> Option<(&'static str, u8)> {
    Some(match kind {
        TokenKind::Or => (operators::OR, OR),
        TokenKind::And => (operators::AND, AND),
        TokenKind::Less => (operators::LESS, RELATION),
        TokenKind::LessEquals => (operators::LESS_EQUALS, RELATION),
        TokenKind::Greater => (operators::GREATER, RELATION),
        TokenKind::GreaterEquals => (operators::GREATER_EQUALS, RELATION),
        TokenKind::Equals => (operators::EQUALS, RELATION),
        TokenKind::NotEquals => (operators::NOT_EQUALS, RELATION),
        TokenKind::In => (operators::IN, RELATION),
        TokenKind::Plus => (operators::ADD, SUM),
        TokenKind::Minus => (operators::SUBTRACT, SUM),
        TokenKind::Star => (operators::MULTIPLY, PRODUCT),
        TokenKind::Slash => (operators::DIVIDE, PRODUCT),
        TokenKind::Percent => (operators::MODULO, PRODUCT),
        _ => return None,
    })
}
