//! Assignability of types and solving for type variables, by the rules of cel-go 0.26's `checker/types.go`.

use super::types::{Parameter, Type};

/// Values of type variables; changes can be undone.
#[derive(Debug, Default)]
pub(crate) struct Substitutions {
    values: Vec<Option<Type>>,
    /// Former values, newest last.
    trail: Vec<(u32, Option<Type>)>,
}

impl Substitutions {
    pub(crate) fn new_variable(&mut self) -> Type {
        self.values.push(None);
        Type::Parameter(Parameter::Variable(self.values.len() as u32 - 1))
    }

    fn find(&self, of: &Type) -> Option<&Type> {
        match of {
            Type::Parameter(Parameter::Variable(number)) => self.values.get(*number as usize)?.as_ref(),
            _ => None,
        }
    }

    fn set(&mut self, variable: &Type, value: Type) {
        if let Type::Parameter(Parameter::Variable(number)) = variable
            && let Some(slot) = self.values.get_mut(*number as usize)
        {
            self.trail.push((*number, slot.replace(value)));
        }
    }

    fn roll_back(&mut self, mark: usize) {
        while self.trail.len() > mark {
            if let Some((number, former)) = self.trail.pop() {
                self.values[number as usize] = former;
            }
        }
    }

    /// Whether `one` can be assigned to `two`; if so, type variables are solved accordingly.
    pub(crate) fn assign(&mut self, one: &Type, two: &Type) -> bool {
        let mark = self.trail.len();
        let fits = self.is_assignable(one, two);
        if !fits {
            self.roll_back(mark);
        }
        fits
    }

    /// As [`Self::assign`], for lists of types.
    pub(crate) fn assign_all(&mut self, ones: &[Type], twos: &[Type]) -> bool {
        let mark = self.trail.len();
        let fits =
            ones.len() == twos.len() && ones.iter().zip(twos).all(|(one, two)| self.is_assignable(one, two));
        if !fits {
            self.roll_back(mark);
        }
        fits
    }

    fn is_assignable(&mut self, one: &Type, two: &Type) -> bool {
        if matches!(two, Type::Parameter(_)) {
            let (valid, has_substitution) = self.is_substitution(one, two);
            if valid {
                return true;
            }
            if has_substitution {
                return false;
            }
        }
        if matches!(one, Type::Parameter(_)) {
            return self.is_substitution(two, one).0;
        }
        if one.is_dyn_or_error() || two.is_dyn_or_error() {
            return true;
        }
        if *one == Type::Null {
            return is_nullable(two);
        }
        if *two == Type::Null {
            return is_nullable(one);
        }
        match (one, two) {
            (Type::Meta(_), Type::Meta(_)) => true,
            (Type::List(a), Type::List(b)) => self.is_assignable(a, b),
            (Type::Map(a), Type::Map(b)) => self.is_assignable(&a.0, &b.0) && self.is_assignable(&a.1, &b.1),
            (Type::Opaque(name, a), Type::Opaque(other, b)) => {
                name == other
                    && a.len() == b.len()
                    && a.iter().zip(b.iter()).all(|(a, b)| self.is_assignable(a, b))
            }
            (a, b) => a == b,
        }
    }

    /// Whether `two`, a type parameter, can stand for `one`; and whether `two` had a value already.
    fn is_substitution(&mut self, one: &Type, two: &Type) -> (bool, bool) {
        if one == two {
            return (true, true);
        }
        if let Some(current) = self.find(two).cloned() {
            if *one == current {
                return (true, true);
            }
            if self.is_assignable(one, &current) {
                let general = most_general(one, &current);
                if self.is_not_in(two, &general) {
                    self.set(two, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.is_not_in(two, one) {
            self.set(two, one.clone());
            return (true, false);
        }
        (false, false)
    }

    fn is_not_in(&self, parameter: &Type, within: &Type) -> bool {
        if parameter == within {
            return false;
        }
        match within {
            Type::Parameter(_) => self.find(within).is_none_or(|value| self.is_not_in(parameter, value)),
            other => other.parameters().iter().all(|part| self.is_not_in(parameter, part)),
        }
    }

    /// `of` with its solved variables replaced; with `to_dyn`, unsolved ones become dyn.
    pub(crate) fn resolve(&self, of: &Type, to_dyn: bool) -> Type {
        if let Some(value) = self.find(of) {
            return self.resolve(value, to_dyn);
        }
        match of {
            Type::Parameter(_) if to_dyn => Type::Dyn,
            Type::Opaque(name, parameters) => {
                Type::Opaque(name, parameters.iter().map(|part| self.resolve(part, to_dyn)).collect())
            }
            Type::List(element) => Type::list(self.resolve(element, to_dyn)),
            Type::Map(pair) => Type::map(self.resolve(&pair.0, to_dyn), self.resolve(&pair.1, to_dyn)),
            Type::Meta(Some(of)) => Type::Meta(Some(self.resolve(of, to_dyn).into())),
            other => other.clone(),
        }
    }
}

/// `of` with the named parameters of a declaration replaced.
pub(crate) fn instantiate(of: &Type, names: &[(char, Type)]) -> Type {
    match of {
        Type::Parameter(Parameter::Named(name)) => names
            .iter()
            .find(|(known, _)| known == name)
            .map_or_else(|| of.clone(), |(_, value)| value.clone()),
        Type::Opaque(name, parameters) => {
            Type::Opaque(name, parameters.iter().map(|part| instantiate(part, names)).collect())
        }
        Type::List(element) => Type::list(instantiate(element, names)),
        Type::Map(pair) => Type::map(instantiate(&pair.0, names), instantiate(&pair.1, names)),
        Type::Meta(Some(of)) => Type::Meta(Some(instantiate(of, names).into())),
        other => other.clone(),
    }
}

fn is_nullable(of: &Type) -> bool {
    matches!(
        of,
        Type::Opaque(..)
            | Type::Struct(_)
            | Type::Any
            | Type::Duration
            | Type::Timestamp
            | Type::Null
            | Type::Wrapper(_)
    )
}

/// The more general of two unifying types.
pub(crate) fn most_general(one: &Type, two: &Type) -> Type {
    if is_equal_or_less_specific(one, two) { one.clone() } else { two.clone() }
}

fn is_equal_or_less_specific(one: &Type, two: &Type) -> bool {
    let is_open = |of: &Type| of.is_dyn() || matches!(of, Type::Parameter(_));
    if is_open(one) {
        return true;
    }
    if is_open(two) {
        return false;
    }
    match (one, two) {
        (Type::Opaque(name, ones), Type::Opaque(other, twos)) => {
            name == other
                && ones.len() == twos.len()
                && ones.iter().zip(twos.iter()).all(|(a, b)| is_equal_or_less_specific(a, b))
        }
        (Type::List(a), Type::List(b)) => is_equal_or_less_specific(a, b),
        (Type::Map(a), Type::Map(b)) => {
            is_equal_or_less_specific(&a.0, &b.0) && is_equal_or_less_specific(&a.1, &b.1)
        }
        (Type::Meta(_), Type::Meta(_)) => true,
        (a, b) => a == b,
    }
}
