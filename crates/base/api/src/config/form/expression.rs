//! [`Form`]s as expressions of Kubernetes' CEL.

use super::{
    Contradiction, Field, Form, KEY_OF_NO_MEMORY, NOT_AN_OBJECT, NOT_BOOLEAN, NOT_MEMORY, not_a_field,
    not_one_of, place_of,
};
use crate::config::memory_limit;

/// Conditions with their findings. Each condition is evaluated only if no earlier one applies, and can rely on the validity
/// of the values checked earlier.
#[derive(Debug, Default)]
pub(in crate::config) struct Checks {
    cases: Vec<Case>,
}

#[derive(Debug)]
struct Case {
    condition: String,
    found: String,
}

/// A text in CEL.
pub(in crate::config) fn text(text: &str) -> String {
    format!("{text:?}")
}

fn texts<'a>(all: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<String> = all.into_iter().map(text).collect();
    format!("[{}]", all.join(", "))
}

impl Checks {
    /// The finding where `condition` applies: the place, an expression for the value there, and the reason.
    pub fn find(&mut self, condition: impl Into<String>, place: &str, value: &str, reason: &str) {
        // Elements of one list have one type.
        let found = format!("[dyn({}), dyn({value}), dyn({})]", text(place), text(reason));
        self.cases.push(Case { condition: condition.into(), found });
    }

    /// Where `condition` applies, the other checks decide.
    pub fn leave_to(&mut self, condition: impl Into<String>, checks: &Self) {
        let inner = checks.expression().replace('\n', "\n  ");
        self.cases.push(Case { condition: condition.into(), found: format!("(\n  {inner})") });
    }

    /// Checks of the object `value`, which may also have the fields `also`.
    pub fn object(
        &mut self,
        place: &str,
        value: &str,
        also: &[&str],
        fields: &[Field],
        contradictions: &[Contradiction],
    ) {
        let fields = Fields { place, value, also, fields, contradictions };
        fields.add(self, "");
    }

    /// An expression for the first finding; an empty list without findings.
    pub fn expression(&self) -> String {
        let mut expression = String::new();
        for Case { condition, found } in &self.cases {
            expression += &format!("{condition}\n  ? {found} :\n");
        }
        expression + "[]"
    }

    /// `guard` is the precondition for the existence of `value`: empty, or ending with `&&`.
    fn add(&mut self, form: &Form, place: &str, value: &str, guard: &str) {
        let no_object = format!("{guard}type({value}) != map");
        match form {
            Form::Object(fields, contradictions) => {
                self.find(no_object, place, value, NOT_AN_OBJECT);
                Fields { place, value, also: &[], fields, contradictions }.add(self, guard);
            }
            Form::MemoryLimits => {
                self.find(no_object, place, value, NOT_AN_OBJECT);
                let is_wrong = format!("[{value}[key]].exists(limit, {})", memory_limit::is_wrong_in_cel());
                let first = format!("{value}.map(key, {is_wrong}, string(key)).min()");
                let any = format!("{guard}{value}.exists(key, {is_wrong})");
                self.find(any, place, &first, KEY_OF_NO_MEMORY);
            }
            Form::OneOf(known) => {
                let condition = format!("{guard}!({value} in {})", texts(known.iter().copied()));
                self.find(condition, place, value, &not_one_of(known));
            }
            Form::Whole(least, most, what) => {
                let condition =
                    format!("{guard}(type({value}) != int || {value} < {least} || {value} > {most})");
                self.find(condition, place, value, &format!("is not {what}"));
            }
            Form::MemoryLimit => {
                let is_wrong = format!("[{value}].exists(limit, {})", memory_limit::is_wrong_in_cel());
                self.find(format!("{guard}{is_wrong}"), place, value, NOT_MEMORY);
            }
            Form::Boolean => {
                self.find(format!("{guard}type({value}) != bool"), place, value, NOT_BOOLEAN);
            }
        }
    }
}

/// The inside of an object.
struct Fields<'a> {
    place: &'a str,
    value: &'a str,
    also: &'a [&'a str],
    fields: &'a [Field],
    contradictions: &'a [Contradiction],
}

impl Fields<'_> {
    fn add(&self, checks: &mut Checks, guard: &str) {
        let Self { place, value, also, fields, contradictions } = self;
        let known = texts(also.iter().copied().chain(fields.iter().map(|field| field.name)));
        let first = format!("{value}.map(key, !(key in {known}), string(key)).min()");
        let unknown = format!("{guard}{value}.exists(key, !(key in {known}))");
        checks.find(unknown, place, &first, &not_a_field(fields));
        let or_null = |name: &str| format!("{value}.?{name}.orValue(null)");
        for field in *fields {
            let place = place_of(place, field.name);
            if field.is_optional {
                let guard = format!("{guard}{} != null && ", or_null(field.name));
                checks.add(&field.form, &place, &format!("{value}.{}", field.name), &guard);
            } else {
                checks.add(&field.form, &place, &or_null(field.name), guard);
            }
        }
        for contradiction in *contradictions {
            let Contradiction { field, text: wrong, with, reason } = contradiction;
            let mut condition = format!("{guard}{} == {}", or_null(field), text(wrong));
            if let Some(other) = with {
                condition += &format!(" && {} != null", or_null(other));
            }
            checks.find(condition, &place_of(place, field), &or_null(field), reason);
        }
    }
}
