//! Parses an expression into an [`Ast`], with the verdicts of cel-go 0.26's parser.
//!
//! Upstream's parser recurses and bounds its recursion; this one keeps its state in two vectors (operands, and what is
//! open) and counts what upstream's recursion would have been, so that both refuse the same expressions and this one
//! needs no stack. The parser of the `cel` crate was not an option: it recurses without such a bound.

use std::sync::Arc;

use super::ast::{Ast, Entry, Field, Kind, Literal, NodeId, operators};
use super::lexer::{Token, TokenKind, tokenize};
use super::macros;
use super::source::Issue;
use super::unescape;

/// Upstream's `maxRecursionDepth`, for grammar rules and for the walk over their tree.
const DEEPEST: u32 = 250;

/// Upstream's `expressionSizeCodePointLimit`.
const LONGEST_EXPRESSION: usize = 100_000;

/// Most nodes an expression may have after its macros are expanded. Upstream has no such limit: `optMap` copies its
/// target, so a chain of n of them has 2^n nodes there.
pub(crate) const MOST_NODES: usize = 200_000;

const RESERVED: [&str; 21] = [
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

/// An operand: its node, how deep upstream's walk would be in it, where its text begins.
#[derive(Clone, Copy)]
struct Operand {
    node: NodeId,
    depth: u32,
    start: u32,
}

/// What has been opened and not closed.
enum Open {
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
        fields: Vec<Arc<str>>,
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

impl Open {
    /// Whether this encloses whole expressions, as brackets do.
    fn is_bracket(&self) -> bool {
        !matches!(
            self,
            Open::Prefix { .. } | Open::Binary { .. } | Open::Condition { .. } | Open::Alternative { .. }
        )
    }
}

const OR: u8 = 1;
const AND: u8 = 2;
const RELATION: u8 = 3;
const SUM: u8 = 4;
const PRODUCT: u8 = 5;

fn binary_operator(kind: TokenKind) -> Option<(&'static str, u8)> {
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

/// Parses `source`, macros expanded.
pub(crate) fn parse(source: &str) -> Result<Ast, Issue> {
    let size = source.chars().count();
    if size > LONGEST_EXPRESSION {
        return Err(Issue::nowhere(format!(
            "expression code point size exceeds limit: size: {size}, limit {LONGEST_EXPRESSION}"
        )));
    }
    let tokens = tokenize(source)?;
    let mut parser = Parser {
        source,
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
    tokens: Vec<Token>,
    at: usize,
    ast: Ast,
    operands: Vec<Operand>,
    open: Vec<Open>,
    /// How many of upstream's rules `expr`, `relation` and `calc` would be active; no other rule is active more often.
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
        // The last token is the end and is never passed.
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

    /// Reads what begins an operand. False: something was opened and an operand is still expected.
    fn operand(&mut self) -> Result<bool, Issue> {
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

    fn is_negative_literal(&self) -> bool {
        matches!(self.kind_after(1), TokenKind::Int | TokenKind::Float)
    }

    fn prefix(&mut self, kind: TokenKind, function: &'static str) {
        let first = self.token();
        let mut count = 0;
        while self.kind() == kind {
            // Greedy, as upstream's grammar: `--1` is two signs and the literal 1.
            self.at += 1;
            count += 1;
        }
        self.open.push(Open::Prefix { function, count, at: first.start, start: first.start });
    }

    fn literal(&mut self, sign: Option<Token>) -> Result<(), Issue> {
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

    fn list(&mut self) -> Result<bool, Issue> {
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

    fn map(&mut self) -> Result<bool, Issue> {
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

    fn takes_question(&mut self) -> bool {
        let is = self.kind() == TokenKind::Question;
        self.at += usize::from(is);
        is
    }

    /// An identifier, a global call, or a message literal.
    fn name(&mut self, leading_dot: bool) -> Result<bool, Issue> {
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

    fn message(&mut self, start: u32, name: Arc<str>) -> Result<bool, Issue> {
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

    fn field_name(&mut self) -> Result<Arc<str>, Issue> {
        let optional = self.takes_question();
        let token = self.token();
        if token.kind == TokenKind::EscapedIdentifier {
            return Err(Issue::at(token.start, "unsupported syntax: '`'"));
        }
        if token.kind != TokenKind::Identifier {
            return Err(self.unexpected("IDENTIFIER"));
        }
        let name = self.text(token).into();
        self.at += 1;
        if self.kind() != TokenKind::Colon {
            return Err(self.unexpected("':'"));
        }
        self.at += 1;
        if optional {
            return Err(Issue::at(token.start, "optional fields of messages are not supported"));
        }
        Ok(name)
    }

    /// Reads what follows an operand. True: the expression is complete; false: an operand is expected.
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

    /// `.field`, `.?field` or `.method(`. True: arguments follow.
    fn member(&mut self) -> Result<bool, Issue> {
        let dot = self.next();
        let optional = self.takes_question();
        let token = self.token();
        if token.kind == TokenKind::EscapedIdentifier {
            return Err(Issue::at(token.start, "unsupported syntax: '`'"));
        }
        if token.kind != TokenKind::Identifier {
            return Err(self.unexpected("IDENTIFIER"));
        }
        self.at += 1;
        let name: Arc<str> = self.text(token).into();
        if !optional && self.kind() == TokenKind::LeftParenthesis {
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

    fn pop(&mut self) -> Operand {
        // Every caller has just completed an operand.
        self.operands.pop().unwrap_or(Operand { node: 0, depth: 0, start: 0 })
    }

    fn apply_prefix(&mut self) -> Result<(), Issue> {
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

    fn binary(&mut self, function: &'static str, level: u8, at: u32) -> Result<(), Issue> {
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
    fn reduce(&mut self, level: u8) -> Result<(), Issue> {
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
    fn finish_expression(&mut self) -> Result<(), Issue> {
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

    /// A comma inside a bracket. False: it was a trailing one, the bracket's end follows.
    fn comma(&mut self) -> Result<bool, Issue> {
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
            // The loop in `after_operand` goes on with the closing bracket.
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

    fn close(&mut self, kind: TokenKind) -> Result<(), Issue> {
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
                let fields =
                    fields.into_iter().zip(nodes).map(|(name, value)| Field { name, value }).collect();
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

    fn take(&mut self, first: usize) -> (Vec<NodeId>, u32) {
        let operands: Vec<Operand> = self.operands.drain(first..).collect();
        let depth = operands.iter().map(|operand| operand.depth).max().unwrap_or(0);
        (operands.iter().map(|operand| operand.node).collect(), depth)
    }

    fn finish_member_call(&mut self, at: u32, name: Arc<str>, first: usize) -> Result<(), Issue> {
        let target = self.operands[first - 1];
        self.finish_call(at, target.start, name, Some(target), first)
    }

    fn finish_call(
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

fn int_literal(text: &str, negative: bool) -> Option<i64> {
    let magnitude = match text.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok()?,
        None => text.parse().ok()?,
    };
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}
