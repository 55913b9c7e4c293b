//! Parses an expression into an [`Ast`]; accepts and refuses the same as cel-go's parser.
//!
//! Upstream's parser recurses and limits its recursion; this one keeps its state in two vectors (operands, and open
//! constructs) and counts the depth of upstream's recursion, so both refuse the same expressions and
//! this one needs no stack. The parser of the `cel` crate was not an option: it recurses without such a limit.

mod open;
mod operands;
mod reduce;

use std::sync::Arc;

use tessera_api::kubernetes::KubernetesVersion;

use crate::environment::is_1_37;
use crate::syntax::ast::{Ast, Kind, Literal, operators};
use crate::syntax::lexer::{Token, TokenKind, tokenize};
use crate::syntax::source::Issue;
use open::{Open, Operand, binary_operator};

/// Upstream's `maxRecursionDepth`, for grammar rules and for the walk over their tree.
const DEEPEST: u32 = 250;

/// Upstream's `expressionSizeCodePointLimit`.
const LONGEST_EXPRESSION: usize = 100_000;

/// Largest number of nodes of an expression after macro expansion. Upstream has no such limit: `optMap` copies its
/// target, so a chain of n of them has 2^n nodes there.
pub(crate) const MOST_NODES: usize = 200_000;

impl Open {
    /// Whether this encloses whole expressions, as brackets do.
    fn is_bracket(&self) -> bool {
        !matches!(
            self,
            Open::Prefix { .. } | Open::Binary { .. } | Open::Condition { .. } | Open::Alternative { .. }
        )
    }
}

/// Parses `source` and expands macros.
pub(crate) fn parse(source: &str, version: KubernetesVersion) -> Result<Ast, Issue> {
    let size = source.chars().count();
    if size > LONGEST_EXPRESSION {
        return Err(Issue::nowhere(format!(
            "expression code point size exceeds limit: size: {size}, limit {LONGEST_EXPRESSION}"
        )));
    }
    let tokens = tokenize(source)?;
    let mut parser = Parser {
        source,
        escapes_names: is_1_37(version),
        tokens,
        at: 0,
        ast: Ast::default(),
        operands: Vec::new(),
        open: Vec::new(),
        expressions: 1,
        relations: 1,
        calculations: 1,
    };
    parser.run()?;
    Ok(parser.ast)
}

struct Parser<'s> {
    source: &'s str,
    /// Whether names of fields may stand in backticks.
    escapes_names: bool,
    tokens: Vec<Token>,
    at: usize,
    ast: Ast,
    operands: Vec<Operand>,
    open: Vec<Open>,
    /// Number of active rules `expr`, `relation` and `calc` of upstream; no other rule is active more
    /// often.
    expressions: u32,
    relations: u32,
    calculations: u32,
}

impl Parser<'_> {
    fn run(&mut self) -> Result<(), Issue> {
        loop {
            let complete = self.operand()?;
            if !complete {
                continue;
            }
            if self.after_operand()? {
                break;
            }
        }
        let Some(result) = self.operands.pop() else {
            return Err(Issue::nowhere("Syntax error: no expression"));
        };
        if result.depth > DEEPEST {
            return Err(Issue::nowhere("max recursion depth exceeded"));
        }
        self.ast.root = result.node;
        Ok(())
    }

    fn token(&self) -> Token {
        // The last token is the end and is never consumed.
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn kind(&self) -> TokenKind {
        self.token().kind
    }

    fn kind_after(&self, count: usize) -> TokenKind {
        self.tokens[(self.at + count).min(self.tokens.len() - 1)].kind
    }

    fn next(&mut self) -> Token {
        let token = self.token();
        self.at += 1;
        token
    }

    fn text(&self, token: Token) -> &str {
        &self.source[token.start as usize..token.end as usize]
    }

    fn unexpected(&self, wanted: &str) -> Issue {
        let token = self.token();
        let shown = if token.kind == TokenKind::End { "<EOF>" } else { self.text(token) };
        let shown: String = shown.chars().take(40).collect();
        Issue::at(token.start, format!("Syntax error: mismatched input '{shown}' expecting {wanted}"))
    }

    fn check_depth(&self) -> Result<(), Issue> {
        if self.expressions.max(self.relations).max(self.calculations) > DEEPEST {
            return Err(Issue::nowhere(format!("expression recursion limit exceeded: {DEEPEST}")));
        }
        Ok(())
    }

    fn open_bracket(&mut self, open: Open) -> Result<(), Issue> {
        self.open.push(open);
        self.expressions += 1;
        self.relations += 1;
        self.calculations += 1;
        self.check_depth()
    }

    fn close_bracket(&mut self) -> Option<Open> {
        self.expressions -= 1;
        self.relations -= 1;
        self.calculations -= 1;
        self.open.pop()
    }

    fn push(&mut self, kind: Kind, at: u32, start: u32, depth: u32) -> Result<(), Issue> {
        let end = if self.at == 0 { start } else { self.tokens[self.at - 1].end };
        let node = self.ast.add(kind, at, start, end);
        if self.ast.nodes.len() > MOST_NODES {
            return Err(Issue::at(
                at,
                format!("expression has more than {MOST_NODES} nodes after macro expansion"),
            ));
        }
        self.operands.push(Operand { node, depth, start });
        Ok(())
    }

    /// Reads the tokens after an operand. Returns true if the expression is complete, false if an operand is expected.
    fn after_operand(&mut self) -> Result<bool, Issue> {
        loop {
            match self.kind() {
                TokenKind::Dot => {
                    if self.member()? {
                        return Ok(false);
                    }
                    continue;
                }
                TokenKind::LeftBracket => {
                    let at = self.next().start;
                    let optional = self.takes_question();
                    self.open_bracket(Open::Index { at, optional })?;
                    return Ok(false);
                }
                _ => {}
            }
            self.apply_prefix()?;
            let token = self.token();
            if let Some((function, level)) = binary_operator(token.kind) {
                self.binary(function, level, token.start)?;
                return Ok(false);
            }
            match token.kind {
                TokenKind::Question => {
                    self.reduce(0)?;
                    if matches!(self.open.last(), Some(Open::Condition { .. })) {
                        return Err(self.unexpected("':'"));
                    }
                    self.at += 1;
                    self.open.push(Open::Condition { at: token.start });
                    return Ok(false);
                }
                TokenKind::Colon => {
                    self.reduce(0)?;
                    if let Some(Open::Condition { at }) = self.open.last() {
                        let at = *at;
                        self.open.pop();
                        self.at += 1;
                        self.open.push(Open::Alternative { at });
                        self.expressions += 1;
                        self.check_depth()?;
                        return Ok(false);
                    }
                    self.finish_expression()?;
                    match self.open.last_mut() {
                        Some(Open::Map { has_key, .. }) if !*has_key => {
                            *has_key = true;
                            self.at += 1;
                            return Ok(false);
                        }
                        _ => return Err(self.unexpected("<EOF>")),
                    }
                }
                TokenKind::Comma => {
                    self.finish_expression()?;
                    if self.comma()? {
                        return Ok(false);
                    }
                }
                TokenKind::RightParenthesis | TokenKind::RightBracket | TokenKind::RightBrace => {
                    self.finish_expression()?;
                    self.close(token.kind)?;
                }
                TokenKind::End => {
                    self.finish_expression()?;
                    if self.open.is_empty() {
                        return Ok(true);
                    }
                    return Err(self.unexpected("a closing bracket"));
                }
                _ => return Err(self.unexpected("<EOF>")),
            }
        }
    }

    /// The name of a field, with or without backticks.
    fn selected_name(&mut self) -> Result<Arc<str>, Issue> {
        let token = self.token();
        let text = self.text(token);
        let name = match token.kind {
            TokenKind::Identifier => text.into(),
            TokenKind::EscapedIdentifier if self.escapes_names => text.trim_matches('`').into(),
            TokenKind::EscapedIdentifier => return Err(Issue::at(token.start, "unsupported syntax: '`'")),
            _ => return Err(self.unexpected("IDENTIFIER")),
        };
        self.at += 1;
        Ok(name)
    }

    /// `.field`, `.?field` or `.method(`. Returns true if arguments follow.
    fn member(&mut self) -> Result<bool, Issue> {
        let dot = self.next();
        let optional = self.takes_question();
        let token = self.token();
        let name = self.selected_name()?;
        if !optional && token.kind == TokenKind::Identifier && self.kind() == TokenKind::LeftParenthesis {
            let at = self.next().start;
            let first = self.operands.len();
            if self.kind() == TokenKind::RightParenthesis {
                self.at += 1;
                self.finish_member_call(at, name, first)?;
                return Ok(false);
            }
            self.open_bracket(Open::MemberCall { at, name, first })?;
            return Ok(true);
        }
        let operand = self.pop();
        let depth = operand.depth + 1;
        if optional {
            let literal =
                self.ast.add(Kind::Literal(Literal::String(name)), token.start, token.start, token.end);
            let kind = Kind::Call {
                function: operators::OPTIONAL_SELECT.into(),
                target: None,
                arguments: vec![operand.node, literal],
            };
            self.push(kind, dot.start, operand.start, depth)?;
        } else {
            let kind = Kind::Select { operand: operand.node, field: name, test_only: false };
            self.push(kind, dot.start, operand.start, depth)?;
        }
        Ok(false)
    }
}
