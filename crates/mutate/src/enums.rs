//! The enumerations of all crates, so that a variant can be replaced by its neighbour; and which items are left out.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Attribute, Meta};

/// The variants without fields of each enumeration: of each name, those of every crate that has one.
#[derive(Debug, Default)]
pub(crate) struct Enums {
    variants: BTreeMap<String, Vec<(String, Vec<String>)>>,
}

impl Enums {
    /// Adds those of a file.
    pub(crate) fn add(&mut self, crate_name: &str, text: &str) -> syn::Result<()> {
        let file = syn::parse_file(text)?;
        Collector {
            enums: self,
            crate_name,
        }
        .visit_file(&file);
        Ok(())
    }

    /// The variant after this one, or the first after the last. An enumeration of the same crate comes first.
    pub(crate) fn neighbour(&self, crate_name: &str, name: &str, variant: &str) -> Option<&str> {
        let all = self.variants.get(name)?;
        let own = all.iter().filter(|(owner, _)| owner == crate_name);
        let others = all.iter().filter(|(owner, _)| owner != crate_name);
        let variants = own
            .chain(others)
            .map(|(_, those)| those)
            .find(|those| those.iter().any(|one| one == variant))?;
        let after = variants.iter().skip_while(|one| *one != variant).nth(1);
        let other = after
            .or_else(|| variants.first())
            .filter(|other| *other != variant)?;
        Some(other.as_str())
    }
}

struct Collector<'a> {
    enums: &'a mut Enums,
    crate_name: &'a str,
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        let plain = item
            .variants
            .iter()
            .filter(|variant| variant.fields.is_empty());
        let names = plain.map(|variant| variant.ident.to_string()).collect();
        let those = self
            .enums
            .variants
            .entry(item.ident.to_string())
            .or_default();
        those.push((self.crate_name.to_owned(), names));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_left_out(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
}

/// Whether what these attributes stand at is for tests, or is not compiled everywhere.
pub(crate) fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"))
        .any(|attribute| {
            let Meta::List(list) = &attribute.meta else {
                return true;
            };
            !matches!(
                list.tokens.to_string().as_str(),
                "target_os = \"linux\"" | "not (test)"
            )
        })
}
