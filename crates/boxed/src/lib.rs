//! `#[boxed::future]`: an async function whose future is compiled once, in its own crate.
//!
//! The future of a plain async function is compiled in every crate that awaits it, together with
//! everything that it awaits. For the operations of the service that was a third of a release build
//! (docs/decisions/0049-time-of-a-release-build.md).

use proc_macro::{Delimiter, Group, Ident, Punct, Spacing, Span, TokenStream, TokenTree};

/// Lifetime of the returned future, and of every reference among the arguments.
const LIFETIME: &str = "boxed";

/// Turns `async fn f(&self, a: &A) -> T { body }` into
/// `fn f<'boxed>(&'boxed self, a: &'boxed A) -> Pin<Box<dyn Future<Output = T> + Send + 'boxed>>`.
///
/// It is for functions without type parameters; the compiler rejects any other.
#[proc_macro_attribute]
pub fn future(_: TokenStream, function: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    let Some(TokenTree::Group(body)) = tokens.pop() else { return error("there is no body") };
    let is_arguments = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
    let follows_name = |window: &[TokenTree]| {
        matches!(&window[0], TokenTree::Ident(word) if word.to_string() == "fn")
            && is_arguments(&window[2])
    };
    let Some(start) = tokens.windows(3).position(follows_name) else {
        return error("this is for functions without type parameters");
    };
    let output = tokens.split_off(start + 3);
    let Some(TokenTree::Group(arguments)) = tokens.pop() else { return error("no arguments") };
    // Past `->`.
    let output: TokenStream = output.into_iter().skip(2).collect();
    let output = if output.is_empty() { "()".parse().unwrap_or_default() } else { output };
    let mut arguments_with_lifetime =
        Group::new(Delimiter::Parenthesis, with_lifetime(arguments.stream()));
    arguments_with_lifetime.set_span(arguments.span());

    let mut result: TokenStream = tokens.into_iter().filter(|token| !is_async(token)).collect();
    result.extend(parse("<'boxed>"));
    result.extend([TokenTree::Group(arguments_with_lifetime)]);
    result.extend(parse("-> ::std::pin::Pin<Box<dyn ::std::future::Future<Output ="));
    result.extend(with_lifetime(output));
    result.extend(parse("> + Send + 'boxed>>"));
    let mut block = parse("async move");
    block.extend([TokenTree::Group(body)]);
    let mut call = parse("Box::pin");
    call.extend([TokenTree::Group(Group::new(Delimiter::Parenthesis, block))]);
    result.extend([TokenTree::Group(Group::new(Delimiter::Brace, call))]);
    result
}

fn is_async(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Ident(word) if word.to_string() == "async")
}

/// Gives every reference and every `'_` the lifetime of the future.
fn with_lifetime(tokens: TokenStream) -> TokenStream {
    let mut tokens = tokens.into_iter().peekable();
    let mut result = TokenStream::new();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), with_lifetime(group.stream()));
                inner.set_span(group.span());
                result.extend([TokenTree::Group(inner)]);
            }
            TokenTree::Punct(sign) if sign.as_char() == '&' => {
                result.extend([TokenTree::Punct(sign)]);
                let is_named =
                    matches!(tokens.peek(), Some(TokenTree::Punct(next)) if next.as_char() == '\'');
                if !is_named {
                    result.extend(lifetime());
                }
            }
            TokenTree::Punct(sign) if sign.as_char() == '\'' => match tokens.next() {
                Some(TokenTree::Ident(name)) if name.to_string() == "_" => {
                    result.extend(lifetime());
                }
                name => result.extend([TokenTree::Punct(sign)].into_iter().chain(name)),
            },
            other => result.extend([other]),
        }
    }
    result
}

fn lifetime() -> [TokenTree; 2] {
    [
        TokenTree::Punct(Punct::new('\'', Spacing::Joint)),
        TokenTree::Ident(Ident::new(LIFETIME, Span::call_site())),
    ]
}

/// Parses a part of the result. Its brackets may be unbalanced `<` and `>`, which are no groups.
fn parse(text: &str) -> TokenStream {
    text.parse().unwrap_or_default()
}

fn error(reason: &str) -> TokenStream {
    parse(&format!("compile_error!({reason:?});"))
}
