//! What a route is: one row for the router, the guard and the OpenAPI document.

use std::borrow::Cow;
use std::sync::Arc;

use api::access::Role;
use axum::http::Method;
use axum::routing::MethodRouter;
use utoipa::ToSchema;

use crate::app::App;
use crate::audit::Purpose;
use crate::limits;

/// What a caller must have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Needs {
    /// No role: it reveals nothing, or is the login.
    Nothing,
    /// A token of this role or one above, or the socket.
    Role(Role),
}

/// A type of the API, for the document.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Its name among the schemas.
    pub(crate) name: fn() -> Cow<'static, str>,
    /// Adds its schema and those of all it is made of.
    pub(crate) collect: fn(&mut Vec<(String, serde_json::Value)>),
}

/// The shape of a type.
pub(crate) const fn of<T: ToSchema>() -> Shape {
    Shape {
        name: T::name,
        collect: collect::<T>,
    }
}

fn collect<T: ToSchema>(schemas: &mut Vec<(String, serde_json::Value)>) {
    let mut all = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut all);
    let written = all.into_iter().filter_map(|(name, schema)| {
        let schema = serde_json::to_value(schema).ok()?;
        Some((name, schema))
    });
    schemas.extend(written);
}

/// What an answer holds.
#[derive(Clone, Copy)]
pub(crate) enum Gives {
    /// No body: 204.
    Nothing,
    /// One thing as JSON.
    One(Shape),
    /// A list of things as JSON.
    Many(Shape),
    /// Any JSON.
    Json,
    /// Text, of one of these content types.
    Texts(&'static [&'static str]),
    /// Bytes, of this content type.
    File(&'static str),
}

/// What the value of a field is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// Text.
    Text,
    /// A number, at most this.
    Number(u64),
    /// `true` or `false`.
    Flag,
}

/// A field of the query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it says.
    pub(crate) about: &'static str,
    /// It cannot be left out.
    pub(crate) required: bool,
    /// What its value is.
    pub(crate) value: Value,
}

impl Field {
    /// One that may be left out.
    pub(crate) const fn optional(name: &'static str, value: Value, about: &'static str) -> Self {
        Self {
            name,
            about,
            required: false,
            value,
        }
    }
}

/// Every change of the configuration knows this one.
pub(crate) const PLAN: Field = Field::optional(
    "plan",
    Value::Flag,
    "Change nothing: the answer is the Plan of the change.",
);

/// What one method of one path does.
pub(crate) struct Route {
    /// How.
    pub(crate) method: Method,
    /// Where, in the form of axum, which is that of OpenAPI.
    pub(crate) path: &'static str,
    /// The least role that may use it.
    pub(crate) needs: Needs,
    /// What it does, in one line.
    pub(crate) about: &'static str,
    /// What it takes.
    pub(crate) takes: Option<Shape>,
    /// What it gives.
    pub(crate) gives: Gives,
    /// It answers 201 when it made a thing.
    pub(crate) makes: bool,
    /// It answers with the revision as ETag.
    pub(crate) tagged: bool,
    /// It changes the configuration: it heeds If-Match, and can be planned.
    pub(crate) conditional: bool,
    /// Fields of its query, besides [`PLAN`].
    query: &'static [Field],
    /// The body may be as long as a document.
    pub(crate) takes_document: bool,
    /// It changes nothing, although its method could.
    pub(crate) only_asks: bool,
    /// The code.
    pub(crate) handler: fn() -> MethodRouter<Arc<App>>,
}

/// A constructor for each method.
macro_rules! by_method {
    ($($(#[$about:meta])* $name:ident = $method:ident,)*) => {$(
        $(#[$about])*
        pub(crate) const fn $name(
            path: &'static str,
            role: Role,
            about: &'static str,
            gives: Gives,
            handler: fn() -> MethodRouter<Arc<App>>,
        ) -> Self {
            Self::new(Method::$method, path, role, about, gives, handler)
        }
    )*};
}

impl Route {
    const fn new(
        method: Method,
        path: &'static str,
        role: Role,
        about: &'static str,
        gives: Gives,
        handler: fn() -> MethodRouter<Arc<App>>,
    ) -> Self {
        Self {
            method,
            path,
            needs: Needs::Role(role),
            about,
            takes: None,
            gives,
            makes: false,
            tagged: false,
            conditional: false,
            query: &[],
            takes_document: false,
            only_asks: false,
            handler,
        }
    }

    /// What a caller must have. A plan of any change is for those who may plan documents.
    pub(crate) fn needs(&self, is_plan: bool) -> Needs {
        match self.needs {
            Needs::Role(role) if is_plan => Needs::Role(role.min(Role::Operator)),
            needs @ (Needs::Nothing | Needs::Role(_)) => needs,
        }
    }

    /// What a request is for, for the books.
    pub(crate) fn purpose(&self, is_plan: bool) -> Purpose {
        match self.gives {
            _ if is_plan => Purpose::Question,
            Gives::File(_) => Purpose::File,
            Gives::Nothing | Gives::One(_) | Gives::Many(_) | Gives::Json | Gives::Texts(_) => {
                if self.only_asks || self.method.is_safe() {
                    Purpose::Question
                } else {
                    Purpose::Change
                }
            }
        }
    }

    /// It changes nothing, although it has a body.
    pub(crate) const fn only_asks(mut self) -> Self {
        self.only_asks = true;
        self
    }

    by_method! {
        /// A question.
        get = GET,
        /// An act.
        post = POST,
        /// Makes a thing or makes it so.
        put = PUT,
        /// Removes a thing.
        delete = DELETE,
    }

    /// For everybody.
    pub(crate) const fn open(mut self) -> Self {
        self.needs = Needs::Nothing;
        self
    }

    /// Takes a body.
    pub(crate) const fn takes(mut self, shape: Shape) -> Self {
        self.takes = Some(shape);
        self
    }

    /// Takes a body that holds a document.
    pub(crate) const fn takes_document(mut self, shape: Shape) -> Self {
        self.takes_document = true;
        self.takes(shape)
    }

    /// Answers 201 when it made a thing.
    pub(crate) const fn makes(mut self) -> Self {
        self.makes = true;
        self
    }

    /// Answers with the revision as ETag.
    pub(crate) const fn tagged(mut self) -> Self {
        self.tagged = true;
        self
    }

    /// Changes the configuration: heeds If-Match, can be planned, and answers with the new revision as ETag.
    pub(crate) const fn conditional(mut self) -> Self {
        self.conditional = true;
        self.tagged()
    }

    /// Takes these fields after the question mark.
    pub(crate) const fn asks(mut self, query: &'static [Field]) -> Self {
        self.query = query;
        self
    }

    /// All fields that its query may have.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &'static Field> + Clone + use<> {
        let plan = self.conditional.then_some(&PLAN);
        self.query.iter().chain(plan)
    }

    /// The statuses of its successes.
    pub(crate) fn statuses(&self) -> &'static [u16] {
        match (self.gives, self.makes) {
            (Gives::Nothing, _) => &[204],
            (_, true) if self.method == Method::POST => &[201],
            (_, true) => &[200, 201],
            (_, false) => &[200],
        }
    }

    /// How long its body may be.
    pub(crate) const fn body_bytes_max(&self) -> usize {
        if self.takes_document {
            limits::DOCUMENT_BYTES_MAX
        } else {
            limits::BODY_BYTES_MAX
        }
    }
}
