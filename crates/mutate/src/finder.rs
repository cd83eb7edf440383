//! The places of one source file where a small edit makes a bug of the kind that programmers make, and each edit as a
//! switch. It knows nothing of files, of what is drawn, and of whether an edit compiles.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the syntax tree may get variants at any time"
)]

use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Block, Expr, Pat, Stmt, Type};

use crate::enums::{Enums, is_left_out};
use crate::names;

/// What stands for the name of a mutant in [`Edit::put`].
pub(crate) const NAME: &str = "@";
/// How long the text around a constant may be that tells it from the same constant elsewhere in its function.
const CONTEXT_MAX: usize = 120;
/// So many letters of an expression are its text.
const TEXT_MAX: usize = 200;

/// One replacement of a range of bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) range: Range<usize>,
    /// The mutated text alone.
    pub(crate) new: String,
    /// The switch between the mutated text and the one that stands there.
    pub(crate) put: String,
}

/// One possible mutant.
#[derive(Debug)]
pub(crate) struct Site {
    /// The kind that it is drawn by.
    pub(crate) kind: &'static str,
    /// What it does: for one text and one function, another one for each mutant.
    pub(crate) operator: String,
    pub(crate) function: String,
    /// The expression, without line breaks; for a constant, what stands around it.
    pub(crate) text: String,
    pub(crate) edits: Vec<Edit>,
}

/// What one file holds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) sites: Vec<Site>,
    /// Modules in files of their own, as paths below the directory of this one's modules.
    pub(crate) modules: Vec<String>,
}

/// The sites of a source file of `crate_name`, without its tests.
pub(crate) fn find(text: &str, crate_name: &str, enums: &Enums) -> syn::Result<Found> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder {
        text,
        crate_name,
        enums,
        found: Found::default(),
        functions: Vec::new(),
        holders: Vec::new(),
        modules: Vec::new(),
        self_type: String::new(),
        must_diverge: false,
    };
    finder.visit_file(&file);
    Ok(finder.found)
}

/// A text without its line breaks and runs of spaces.
pub(crate) fn normalized(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn expression(new: &str, old: &str) -> String {
    format!("(if crate::mutant(\"{NAME}\") {{ ({new}) }} else {{ ({old}) }})")
}

fn statement(new: &str, old: &str) -> String {
    format!("if crate::mutant(\"{NAME}\") {{ {new} }} else {{ {old} }}")
}

/// Whether a condition binds variables, so that it is no expression.
fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// Whether a value is dropped where it is made.
fn is_discarded(local: &syn::Local) -> bool {
    let has_end = |init: &syn::LocalInit| init.diverge.is_none();
    matches!(local.pat, Pat::Wild(_)) && local.init.as_ref().is_some_and(has_end)
}

/// Whether a statement is `debug_assert!(false, ...)`.
fn is_broken_invariant(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Macro(one) if one.mac.path.is_ident("debug_assert") => {
            one.mac.tokens.to_string().starts_with("false")
        }
        _ => false,
    }
}

struct Finder<'a> {
    text: &'a str,
    crate_name: &'a str,
    enums: &'a Enums,
    found: Found,
    /// The functions around the node, each with its type.
    functions: Vec<String>,
    /// The expressions and statements around the node.
    holders: Vec<Range<usize>>,
    /// The inline modules around the node.
    modules: Vec<String>,
    self_type: String,
    /// Whether the node is in the `else` of a `let`, which may not end.
    must_diverge: bool,
}

impl Finder<'_> {
    fn source(&self, node: &impl Spanned) -> &str {
        self.slice(&node.span().byte_range())
    }

    fn slice(&self, range: &Range<usize>) -> &str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    /// The text of a node with the one of a part of it replaced.
    fn with(&self, node: &impl Spanned, part: &impl Spanned, new: &str) -> String {
        let (whole, part) = (node.span().byte_range(), part.span().byte_range());
        let (before, after) = (whole.start..part.start, part.end..whole.end);
        format!("{}{new}{}", self.slice(&before), self.slice(&after))
    }

    fn add(&mut self, kind: &'static str, operator: String, text: &str, edits: Vec<Edit>) {
        if let Some(function) = self.functions.last() {
            let text = normalized(text).chars().take(TEXT_MAX).collect();
            let function = function.clone();
            let site = Site {
                kind,
                operator,
                function,
                text,
                edits,
            };
            self.found.sites.push(site);
        }
    }

    /// A mutant that is one expression in place of another one.
    fn replace(&mut self, kind: &'static str, operator: String, node: &impl Spanned, new: String) {
        let (range, old) = (node.span().byte_range(), self.source(node).to_owned());
        let put = expression(&new, &old);
        self.add(kind, operator, &old, vec![Edit { range, new, put }]);
    }

    /// A mutant of a constant, which is known by what stands around it.
    fn replace_constant(&mut self, kind: &'static str, node: &impl Spanned, new: String) {
        let (range, old) = (node.span().byte_range(), self.source(node).to_owned());
        let operator = format!("{kind}: {old} to {new}");
        let mut around = self
            .holders
            .iter()
            .map(|holder| normalized(self.slice(holder)));
        let text = around
            .find(|text| text.len() <= CONTEXT_MAX)
            .unwrap_or_else(|| old.clone());
        let put = expression(&new, &old);
        self.add(kind, operator, &text, vec![Edit { range, new, put }]);
    }

    /// A mutant that is one statement, or none, in place of another one.
    fn replace_statement(
        &mut self,
        kind: &'static str,
        operator: String,
        node: &impl Spanned,
        new: String,
    ) {
        let (range, old) = (node.span().byte_range(), self.source(node).to_owned());
        let put = statement(&new, &old);
        self.add(kind, operator, &old, vec![Edit { range, new, put }]);
    }

    fn condition(&mut self, condition: &Expr) {
        // The comparison itself has the same mutant.
        let is_comparison = match condition {
            Expr::Binary(binary) => matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_)),
            _ => false,
        };
        if !has_let(condition) && !is_comparison {
            let new = format!("!({})", self.source(condition));
            self.replace("negation", "negation".into(), condition, new);
        }
    }

    fn arms(&mut self, arms: &[syn::Arm]) {
        for pair in arms.windows(2) {
            let [first, second] = pair else { continue };
            let attributes = [&first.attrs, &second.attrs];
            let (one, other) = (
                self.source(&first.body).to_owned(),
                self.source(&second.body).to_owned(),
            );
            let are_same = normalized(&one) == normalized(&other);
            if are_same
                || attributes.iter().any(|those| is_left_out(those))
                || self.bind(first, second)
            {
                continue;
            }
            let body = |old: &str, new: &str| {
                format!("{{ if crate::mutant(\"{NAME}\") {{ ({new}) }} else {{ ({old}) }} }}")
            };
            let edits = vec![
                Edit {
                    range: first.body.span().byte_range(),
                    put: body(&one, &other),
                    new: other.clone(),
                },
                Edit {
                    range: second.body.span().byte_range(),
                    put: body(&other, &one),
                    new: one.clone(),
                },
            ];
            let text = format!("{} / {}", self.source(&first.pat), self.source(&second.pat));
            self.add("arms", "arms".into(), &text, edits);
        }
    }

    /// Whether a body needs what only the pattern of one of two arms binds.
    fn bind(&self, first: &syn::Arm, second: &syn::Arm) -> bool {
        let (one, other) = (
            names::of(self.source(&first.pat)),
            names::of(self.source(&second.pat)),
        );
        let used = [&first.body, &second.body].map(|body| names::of(self.source(body)));
        one.symmetric_difference(&other)
            .any(|name| used.iter().any(|those| those.contains(name)))
    }

    fn function(&mut self, name: &syn::Ident, attributes: &[Attribute], block: &Block) {
        if is_left_out(attributes)
            || attributes
                .iter()
                .any(|attribute| attribute.path().is_ident("test"))
        {
            return;
        }
        let owner = if self.self_type.is_empty() {
            String::new()
        } else {
            format!("{}::", self.self_type)
        };
        self.functions.push(format!("{owner}{name}"));
        let holders = std::mem::take(&mut self.holders);
        self.visit_block(block);
        self.holders = holders;
        self.functions.pop();
    }

    fn held(&mut self, node: &impl Spanned, visit: impl FnOnce(&mut Self)) {
        self.holders.push(node.span().byte_range());
        visit(self);
        self.holders.pop();
    }

    /// `min` and `max` exchanged, and arithmetic that no longer sees where it ends.
    fn call(&mut self, node: &impl Spanned, name: &syn::Ident, arguments: usize) {
        let called = name.to_string();
        let other = match called.as_str() {
            "min" => Some("max"),
            "max" => Some("min"),
            _ => None,
        };
        if let Some(other) = other.filter(|_| arguments < 3) {
            let new = self.with(node, name, other);
            self.replace(
                "extreme",
                format!("extreme: {called} to {other}"),
                node,
                new,
            );
        }
        let wrapping = match called.as_str() {
            "checked_add" => "wrapping_add",
            "checked_mul" => "wrapping_mul",
            "checked_sub" => "wrapping_sub",
            _ => return,
        };
        let new = format!("Some({})", self.with(node, name, wrapping));
        self.replace("unchecked", format!("unchecked: {called}"), node, new);
    }

    fn dropped(&mut self, node: &Stmt, expression: &Expr) {
        match expression {
            Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) if self.must_diverge => {}
            Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => {
                let what = names::first_word(self.source(expression)).to_owned();
                self.replace_statement("exit", format!("exit: no {what}"), node, String::new());
            }
            Expr::Macro(_) => {}
            Expr::Try(tried) => {
                let new = format!("let _ = {};", self.source(&tried.expr));
                self.replace_statement("unchecked", "unchecked: error ignored".into(), node, new);
                self.replace_statement("statement", "statement: none".into(), node, String::new());
            }
            _ => self.replace_statement("statement", "statement: none".into(), node, String::new()),
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_left_out(&item.attrs) {
            return;
        }
        self.modules.push(item.ident.to_string());
        match &item.content {
            Some((_, items)) => items.iter().for_each(|item| self.visit_item(item)),
            None => self.found.modules.push(self.modules.join("/")),
        }
        self.modules.pop();
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let owner = std::mem::take(&mut self.self_type);
        self.function(&item.sig.ident, &item.attrs, &item.block);
        self.self_type = owner;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig.ident, &item.attrs, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig.ident, &item.attrs, block);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = item
            .trait_
            .as_ref()
            .and_then(|(path, _)| path.segments.last());
        let is_text = of.is_some_and(|of| of.ident == "Display" || of.ident == "Debug");
        if is_text || is_left_out(&item.attrs) {
            return;
        }
        let name = match &*item.self_ty {
            Type::Path(path) => path
                .path
                .segments
                .last()
                .map(|segment| segment.ident.to_string()),
            _ => None,
        };
        let outer = std::mem::replace(&mut self.self_type, name.unwrap_or_default());
        item.items
            .iter()
            .for_each(|item| self.visit_impl_item(item));
        self.self_type = outer;
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if !is_left_out(&item.attrs) {
            let outer = std::mem::replace(&mut self.self_type, item.ident.to_string());
            item.items
                .iter()
                .for_each(|item| self.visit_trait_item(item));
            self.self_type = outer;
        }
    }

    fn visit_stmt(&mut self, node: &'ast Stmt) {
        let attributes: &[Attribute] = match node {
            Stmt::Local(local) => &local.attrs,
            Stmt::Expr(Expr::Block(block), _) => &block.attrs,
            _ => &[],
        };
        if is_left_out(attributes) {
            return;
        }
        match node {
            Stmt::Expr(expression, Some(_)) => self.dropped(node, expression),
            Stmt::Local(local) if is_discarded(local) => {
                self.replace_statement("statement", "statement: none".into(), node, String::new());
            }
            _ => {}
        }
        self.held(node, |finder| visit::visit_stmt(finder, node));
    }

    fn visit_block(&mut self, node: &'ast Block) {
        // What follows a broken invariant runs in no test: the assertion ends it.
        let reached = node
            .stmts
            .iter()
            .take_while(|stmt| !is_broken_invariant(stmt));
        reached.for_each(|stmt| self.visit_stmt(stmt));
    }

    fn visit_local_init(&mut self, init: &'ast syn::LocalInit) {
        self.visit_expr(&init.expr);
        if let Some((_, diverge)) = &init.diverge {
            let outer = std::mem::replace(&mut self.must_diverge, true);
            self.visit_expr(diverge);
            self.must_diverge = outer;
        }
    }

    fn visit_expr(&mut self, node: &'ast Expr) {
        self.held(node, |finder| visit::visit_expr(finder, node));
    }

    fn visit_arm(&mut self, node: &'ast syn::Arm) {
        if !is_left_out(&node.attrs) {
            self.held(node, |finder| visit::visit_arm(finder, node));
        }
    }

    fn visit_field_value(&mut self, node: &'ast syn::FieldValue) {
        if !is_left_out(&node.attrs) {
            self.held(node, |finder| finder.visit_expr(&node.expr));
        }
    }

    fn visit_pat(&mut self, node: &'ast Pat) {
        if let Pat::Guard(guard) = node {
            self.condition(&guard.guard);
            self.visit_expr(&guard.guard);
        }
    }

    fn visit_expr_if(&mut self, node: &'ast syn::ExprIf) {
        self.condition(&node.cond);
        visit::visit_expr_if(self, node);
    }

    fn visit_expr_while(&mut self, node: &'ast syn::ExprWhile) {
        self.condition(&node.cond);
        visit::visit_expr_while(self, node);
    }

    fn visit_expr_match(&mut self, node: &'ast syn::ExprMatch) {
        self.arms(&node.arms);
        visit::visit_expr_match(self, node);
    }

    fn visit_expr_binary(&mut self, node: &'ast syn::ExprBinary) {
        let operator = self.source(&node.op).to_owned();
        let neighbour = match operator.as_str() {
            "<" => "<=",
            "<=" => "<",
            ">" => ">=",
            ">=" => ">",
            "==" => "!=",
            "!=" => "==",
            _ => "",
        };
        if !neighbour.is_empty() {
            let new = self.with(node, &node.op, neighbour);
            self.replace(
                "comparison",
                format!("comparison: {operator} to {neighbour}"),
                node,
                new,
            );
        }
        if matches!(node.op, BinOp::And(_) | BinOp::Or(_))
            && !has_let(&node.left)
            && !has_let(&node.right)
        {
            let other = if operator == "&&" { "||" } else { "&&" };
            let new = format!(
                "(({}) {other} ({}))",
                self.source(&node.left),
                self.source(&node.right)
            );
            self.replace("logic", format!("logic: {operator} to {other}"), node, new);
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_lit(&mut self, node: &'ast syn::ExprLit) {
        match &node.lit {
            syn::Lit::Bool(value) => {
                self.replace_constant("constant", node, (!value.value).to_string())
            }
            syn::Lit::Int(number) => {
                let Ok(value) = number.base10_parse::<u128>() else {
                    return;
                };
                let suffix = if number.suffix().is_empty() {
                    String::new()
                } else {
                    format!("_{}", number.suffix())
                };
                for near in [value.checked_sub(1), value.checked_add(1)]
                    .into_iter()
                    .flatten()
                {
                    self.replace_constant("boundary", node, format!("{near}{suffix}"));
                }
            }
            _ => {}
        }
    }

    fn visit_expr_path(&mut self, node: &'ast syn::ExprPath) {
        let segments: Vec<String> = node
            .path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        let [.., owner, variant] = segments.as_slice() else {
            return;
        };
        let owner = if owner == "Self" {
            &self.self_type
        } else {
            owner
        };
        if let Some(other) = self.enums.neighbour(self.crate_name, owner, variant)
            && let Some(last) = node.path.segments.last()
        {
            let new = self.with(node, &last.ident, other);
            self.replace_constant("constant", node, new);
        }
    }

    fn visit_expr_method_call(&mut self, node: &'ast syn::ExprMethodCall) {
        self.call(node, &node.method, node.args.len());
        self.visit_expr(&node.receiver);
        node.args
            .iter()
            .for_each(|argument| self.visit_expr(argument));
    }

    fn visit_expr_call(&mut self, node: &'ast syn::ExprCall) {
        if let Expr::Path(path) = &*node.func
            && let Some(last) = path.path.segments.last()
            && node.args.len() == 2
        {
            self.call(node, &last.ident, node.args.len());
        }
        visit::visit_expr_call(self, node);
    }

    fn visit_expr_repeat(&mut self, node: &'ast syn::ExprRepeat) {
        self.visit_expr(&node.expr);
    }

    // What is constant, or no code: no switch can stand there.
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_path(&mut self, _: &'ast syn::Path) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
}
