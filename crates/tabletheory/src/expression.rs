//! Conditions and updates in the syntax of DynamoDB's expressions.
//!
//! The DynamoDB backend writes a placeholder for each name and value; messages and logs show them literally.

use crate::cond::{Cond, Node, Test};
use crate::update::{Action, Change, Update};
use crate::value::Value;

/// How names and values appear in an expression.
pub(crate) trait Notation {
    fn name(&mut self, name: &str) -> String;
    fn value(&mut self, value: &Value) -> String;
    /// The list that an append to an absent attribute starts from.
    fn empty_list(&mut self) -> String;
}

/// Names and values as they are, for messages and logs.
pub(crate) struct Literal;

impl Notation for Literal {
    fn name(&mut self, name: &str) -> String {
        name.to_owned()
    }

    fn value(&mut self, value: &Value) -> String {
        value.to_string()
    }

    fn empty_list(&mut self) -> String {
        "[]".to_owned()
    }
}

pub(crate) fn of_cond(cond: &Cond, notation: &mut impl Notation) -> String {
    match &collapsed(cond).0 {
        Node::Test { name, test } => {
            let name = notation.name(name);
            of_test(&name, test, notation)
        }
        Node::All(conds) => join(conds, " AND ", notation),
        Node::Any(conds) => join(conds, " OR ", notation),
        Node::Not(cond) => format!("NOT ({})", of_cond(cond, notation)),
    }
}

fn join(conds: &[Cond], operator: &str, notation: &mut impl Notation) -> String {
    let operand = |cond: &Cond| {
        let text = of_cond(cond, notation);
        let is_joined = matches!(collapsed(cond).0, Node::All(_) | Node::Any(_));
        if is_joined { format!("({text})") } else { text }
    };
    conds.iter().map(operand).collect::<Vec<_>>().join(operator)
}

/// Unwraps conditions that join only one condition: DynamoDB rejects the redundant parentheses that they would need.
fn collapsed(mut cond: &Cond) -> &Cond {
    while let Node::All(conds) | Node::Any(conds) = &cond.0
        && let [only] = conds.as_slice()
    {
        cond = only;
    }
    cond
}

fn of_test(name: &str, test: &Test, notation: &mut impl Notation) -> String {
    let mut value = |value| notation.value(value);
    match test {
        Test::Absent => format!("attribute_not_exists({name})"),
        Test::Exists => format!("attribute_exists({name})"),
        Test::Compare(comparison, operand) => format!("{name} {} {}", comparison.symbol(), value(operand)),
        Test::Between(low, high) => format!("{name} BETWEEN {} AND {}", value(low), value(high)),
        Test::In(values) => {
            format!("{name} IN ({})", values.iter().map(value).collect::<Vec<_>>().join(", "))
        }
        Test::BeginsWith(prefix) => format!("begins_with({name}, {})", value(prefix)),
        Test::Contains(part) => format!("contains({name}, {})", value(part)),
        Test::Size(comparison, size) => {
            format!("size({name}) {} {}", comparison.symbol(), value(&Value::from(*size)))
        }
    }
}

/// Has no spaces where they can be left out: DynamoDB allows 4 KB, and an update may have many changes.
pub(crate) fn of_update(update: &Update, notation: &mut impl Notation) -> String {
    let (mut set, mut remove, mut add) = (Vec::new(), Vec::new(), Vec::new());
    for Change { name, action } in &update.changes {
        let name = notation.name(name);
        match action {
            Action::Set(value) => set.push(format!("{name} = {}", notation.value(value))),
            Action::SetIfAbsent(value) => {
                set.push(format!("{name} = if_not_exists({name},{})", notation.value(value)));
            }
            Action::Append(values) => {
                let (empty, values) = (notation.empty_list(), notation.value(&Value::L(values.clone())));
                set.push(format!("{name} = list_append(if_not_exists({name},{empty}),{values})"));
            }
            Action::Remove => remove.push(name),
            Action::Add(value) => add.push(format!("{name} {}", notation.value(value))),
        }
    }
    let clauses = [("SET", set), ("REMOVE", remove), ("ADD", add)];
    let clauses = clauses.iter().filter(|(_, changes)| !changes.is_empty());
    clauses.map(|(word, changes)| format!("{word} {}", changes.join(", "))).collect::<Vec<_>>().join(" ")
}
