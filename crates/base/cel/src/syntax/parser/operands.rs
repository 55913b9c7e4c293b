//! Parses the beginning of an expression: signs, literals, names, brackets.

use super::Parser;
use super::open::Open;
use crate::syntax::ast::{Kind, Literal, operators};
use crate::syntax::lexer::{Token, TokenKind};
use crate::syntax::source::Issue;
use crate::syntax::unescape;
use std::sync::Arc;

pub(super) const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];

pub(super) fn int_literal(text: &str, negative: bool) -> Option<i64> {
    let magnitude = match text.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok()?,
        None => text.parse().ok()?,
    };
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

impl Parser<'_> {
    /// Reads the beginning of an operand. Returns false if something was opened and an operand is still expected.
    pub(super) fn operand(&mut self) -> Result<bool, Issue> {
        let token = self.token();
        match token.kind {
            TokenKind::Not => {
                if matches!(self.open.last(), Some(Open::Prefix { .. })) {
                    return Err(self.unexpected("IDENTIFIER"));
                }
                self.prefix(TokenKind::Not, operators::NOT);
                Ok(false)
            }
            TokenKind::Minus if self.is_negative_literal() => {
                self.at += 1;
                self.literal(Some(token))?;
                Ok(true)
            }
            TokenKind::Minus => {
                if matches!(self.open.last(), Some(Open::Prefix { .. })) {
                    return Err(self.unexpected("IDENTIFIER"));
                }
                self.prefix(TokenKind::Minus, operators::NEGATE);
                Ok(false)
            }
            TokenKind::LeftParenthesis => {
                self.at += 1;
                self.open_bracket(Open::Parenthesis { start: token.start })?;
                Ok(false)
            }
            TokenKind::LeftBracket => self.list(),
            TokenKind::LeftBrace => self.map(),
            TokenKind::Identifier => self.name(false),
            TokenKind::Dot if self.kind_after(1) == TokenKind::Identifier => {
                self.at += 1;
                self.name(true)
            }
            _ => {
                self.literal(None)?;
                Ok(true)
            }
        }
    }

    pub(super) fn is_negative_literal(&self) -> bool {
        matches!(self.kind_after(1), TokenKind::Int | TokenKind::Float)
    }

    pub(super) fn prefix(&mut self, kind: TokenKind, function: &'static str) {
        let first = self.token();
        let mut count = 0;
        while self.kind() == kind {
            // Greedy, like upstream's grammar: `--1` is two signs and the literal 1.
            self.at += 1;
            count += 1;
        }
        self.open.push(Open::Prefix { function, count, at: first.start, start: first.start });
    }

    pub(super) fn literal(&mut self, sign: Option<Token>) -> Result<(), Issue> {
        let token = self.token();
        let start = sign.map_or(token.start, |sign| sign.start);
        let text = &self.source[token.start as usize..token.end as usize];
        let bad = |message: &str| Issue::at(start, message.to_owned());
        let literal = match token.kind {
            TokenKind::Int => {
                Literal::Int(int_literal(text, sign.is_some()).ok_or_else(|| bad("invalid int literal"))?)
            }
            TokenKind::Uint => {
                let digits = &text[..text.len() - 1];
                let value = match digits.strip_prefix("0x") {
                    Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16),
                    None => digits.parse(),
                };
                Literal::Uint(value.map_err(|_| bad("invalid uint literal"))?)
            }
            TokenKind::Float => {
                let value: f64 = text.parse().map_err(|_| bad("invalid double literal"))?;
                if value.is_infinite() {
                    return Err(bad("invalid double literal"));
                }
                Literal::Double(if sign.is_some() { -value } else { value })
            }
            TokenKind::String => Literal::String(unescape::string_value(text).map_err(bad)?.into()),
            TokenKind::Bytes => Literal::Bytes(unescape::bytes_value(text).map_err(bad)?.into()),
            TokenKind::True => Literal::Bool(true),
            TokenKind::False => Literal::Bool(false),
            TokenKind::Null => Literal::Null,
            _ => {
                return Err(self.unexpected(
                    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, \
                     BYTES, IDENTIFIER}",
                ));
            }
        };
        self.at += 1;
        self.push(Kind::Literal(literal), start, start, 0)
    }

    pub(super) fn list(&mut self) -> Result<bool, Issue> {
        let bracket = self.next();
        let first = self.operands.len();
        // `[,]` is an empty list too.
        if self.kind() == TokenKind::Comma && self.kind_after(1) == TokenKind::RightBracket {
            self.at += 1;
        }
        if self.kind() == TokenKind::RightBracket {
            self.at += 1;
            let kind = Kind::List { elements: Vec::new(), optional: Vec::new() };
            self.push(kind, bracket.start, bracket.start, 0)?;
            return Ok(true);
        }
        let optional = vec![self.takes_question()];
        self.open_bracket(Open::List { at: bracket.start, first, optional })?;
        Ok(false)
    }

    pub(super) fn map(&mut self) -> Result<bool, Issue> {
        let brace = self.next();
        let first = self.operands.len();
        if self.kind() == TokenKind::Comma && self.kind_after(1) == TokenKind::RightBrace {
            self.at += 1;
        }
        if self.kind() == TokenKind::RightBrace {
            self.at += 1;
            self.push(Kind::Map { entries: Vec::new() }, brace.start, brace.start, 0)?;
            return Ok(true);
        }
        let optional = vec![self.takes_question()];
        self.open_bracket(Open::Map { at: brace.start, first, optional, has_key: false })?;
        Ok(false)
    }

    pub(super) fn takes_question(&mut self) -> bool {
        let is = self.kind() == TokenKind::Question;
        self.at += usize::from(is);
        is
    }

    /// An identifier, a global call, or a message literal.
    pub(super) fn name(&mut self, leading_dot: bool) -> Result<bool, Issue> {
        let first = self.token();
        let start = first.start - u32::from(leading_dot);
        let mut names = 0;
        while self.kind_after(names * 2) == TokenKind::Identifier
            && self.kind_after(names * 2 + 1) == TokenKind::Dot
        {
            names += 1;
        }
        if self.kind_after(names * 2) == TokenKind::Identifier
            && self.kind_after(names * 2 + 1) == TokenKind::LeftBrace
        {
            let last = self.tokens[self.at + names * 2];
            let mut name: String =
                self.source[first.start as usize..last.end as usize].split_whitespace().collect();
            if leading_dot {
                name.insert(0, '.');
            }
            self.at += names * 2 + 1;
            return self.message(start, name.into());
        }
        self.at += 1;
        let text = self.text(first);
        if RESERVED.contains(&text) {
            return Err(Issue::at(first.start, format!("reserved identifier: {text}")));
        }
        let name: Arc<str> = if leading_dot { format!(".{text}").into() } else { text.into() };
        if self.kind() != TokenKind::LeftParenthesis {
            self.push(Kind::Identifier(name), first.start, start, 0)?;
            return Ok(true);
        }
        let at = self.next().start;
        let first = self.operands.len();
        if self.kind() == TokenKind::RightParenthesis {
            self.at += 1;
            self.finish_call(at, start, name, None, first)?;
            return Ok(true);
        }
        self.open_bracket(Open::Call { at, start, name, first })?;
        Ok(false)
    }

    pub(super) fn message(&mut self, start: u32, name: Arc<str>) -> Result<bool, Issue> {
        let at = self.next().start;
        let first = self.operands.len();
        if self.kind() == TokenKind::Comma && self.kind_after(1) == TokenKind::RightBrace {
            self.at += 1;
        }
        if self.kind() == TokenKind::RightBrace {
            self.at += 1;
            self.push(Kind::Message { name, fields: Vec::new() }, at, start, 0)?;
            return Ok(true);
        }
        let field = self.field_name()?;
        self.open_bracket(Open::Message { at, start, name, first, fields: vec![field] })?;
        Ok(false)
    }

    /// The name of a field, and whether the field is optional.
    pub(super) fn field_name(&mut self) -> Result<(Arc<str>, bool), Issue> {
        let optional = self.takes_question();
        let name = self.selected_name()?;
        if self.kind() != TokenKind::Colon {
            return Err(self.unexpected("':'"));
        }
        self.at += 1;
        Ok((name, optional))
    }
}
