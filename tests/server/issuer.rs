//! An authorization server, as far as a resource server needs one: it publishes its keys and signs tokens. The
//! signatures are made with the cryptography itself and not with the library that checks them.

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::Utc;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

/// A key of the issuer, or of an attacker.
pub(crate) struct SigningKey {
    pub(crate) kid: String,
    pair: Pair,
}

impl SigningKey {
    pub(crate) fn ed(kid: &str) -> Self {
        Self { kid: kid.to_owned(), pair: Pair::Ed(Ed25519KeyPair::generate().unwrap()) }
    }

    pub(crate) fn ec(kid: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Self { kid: kid.to_owned(), pair: Pair::Ec(pair) }
    }

    pub(crate) fn rsa(kid: &str) -> Self {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        Self { kid: kid.to_owned(), pair: Pair::Rsa(Box::new(pair)) }
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::Ec(_) => "ES256",
            Pair::Ed(_) => "EdDSA",
        }
    }

    pub(crate) fn public(&self) -> Value {
        let mut key = match &self.pair {
            Pair::Rsa(pair) => {
                let (n, e) = (pair.public_key().modulus(), pair.public_key().exponent());
                let n = encoded(n.big_endian_without_leading_zero());
                json!({"kty": "RSA", "n": n, "e": encoded(e.big_endian_without_leading_zero())})
            }
            Pair::Ec(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": encoded(x), "y": encoded(y)})
            }
            Pair::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encoded(pair.public_key())})
            }
        };
        key["kid"] = json!(self.kid);
        key["use"] = json!("sig");
        key
    }

    pub(crate) fn header(&self) -> Value {
        json!({"typ": "at+jwt", "alg": self.algorithm(), "kid": self.kid})
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_under(&self.header(), claims)
    }

    /// With a header that need not be true.
    pub(crate) fn sign_under(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    /// The same of texts that need not be JSON.
    pub(crate) fn sign_text(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", encoded(header), encoded(claims));
        let bytes = message.as_bytes();
        let signature = match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), bytes, &mut signature).unwrap();
                signature
            }
            Pair::Ec(pair) => pair.sign(&SystemRandom::new(), bytes).unwrap().as_ref().to_vec(),
            Pair::Ed(pair) => pair.sign(bytes).as_ref().to_vec(),
        };
        format!("{message}.{}", encoded(signature))
    }

    /// The public key used as a secret, which is known to all.
    pub(crate) fn hmac_with_public(&self, claims: &Value) -> String {
        let header = json!({"typ": "at+jwt", "alg": "HS256", "kid": self.kid});
        let message = message(&header, claims);
        let public = match &self.pair {
            Pair::Rsa(pair) => pair.public_key().as_ref(),
            Pair::Ec(pair) => pair.public_key().as_ref(),
            Pair::Ed(pair) => pair.public_key().as_ref(),
        };
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, public), message.as_bytes());
        format!("{message}.{}", encoded(tag))
    }
}

pub(crate) fn message(header: &Value, claims: &Value) -> String {
    format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()))
}

/// What the issuer answers.
#[derive(Clone)]
struct IssuerState {
    address: String,
    keys: Vec<Value>,
    /// Instead of its usual description.
    description: Option<Value>,
    redirects: bool,
    /// It returns its keys when the sender is gone.
    held: Option<watch::Receiver<()>>,
    asked: usize,
}

type Shared = Arc<Mutex<IssuerState>>;

pub(crate) struct Issuer {
    pub(crate) address: String,
    state: Shared,
    server: JoinHandle<()>,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Issuer {
    pub(crate) async fn with(keys: &[&SigningKey]) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), keys).await
    }

    pub(crate) async fn at(address: SocketAddr, keys: &[&SigningKey]) -> Self {
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let keys = keys.iter().map(|key| key.public()).collect();
        let state = IssuerState {
            address: address.clone(),
            keys,
            description: None,
            redirects: false,
            held: None,
            asked: 0,
        };
        let state: Shared = Arc::new(Mutex::new(state));
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(description))
            .route("/elsewhere", get(serve_default_description))
            .route("/keys", get(keys_of))
            .with_state(Arc::clone(&state));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, state, server }
    }

    pub(crate) fn set_keys(&self, keys: &[&SigningKey]) {
        self.state.lock().unwrap().keys = keys.iter().map(|key| key.public()).collect();
    }

    /// Keys that may be malformed.
    pub(crate) fn set_raw_keys(&self, keys: Vec<Value>) {
        self.state.lock().unwrap().keys = keys;
    }

    pub(crate) fn describe(&self, description: Value) {
        self.state.lock().unwrap().description = Some(description);
    }

    pub(crate) fn redirect(&self) {
        self.state.lock().unwrap().redirects = true;
    }

    /// Holds its keys back until the sender is dropped.
    pub(crate) fn hold_keys(&self) -> watch::Sender<()> {
        let (release, held) = watch::channel(());
        self.state.lock().unwrap().held = Some(held);
        release
    }

    /// How often its keys were asked for.
    pub(crate) fn asked(&self) -> usize {
        self.state.lock().unwrap().asked
    }

    /// The claims of a valid token of this subject for a server.
    pub(crate) fn claims(&self, server: &str, subject: &str) -> Value {
        let now = Utc::now().timestamp();
        json!({"iss": self.address, "aud": format!("{server}/mcp"), "sub": subject,
            "iat": now, "nbf": now, "exp": now + 300, "client_id": "test"})
    }
}

fn default_description(state: &IssuerState) -> Value {
    json!({"issuer": state.address, "jwks_uri": format!("{}/keys", state.address)})
}

async fn description(State(state): State<Shared>) -> Response {
    let state = state.lock().unwrap().clone();
    if state.redirects {
        return Redirect::temporary("/elsewhere").into_response();
    }
    state
        .description
        .clone()
        .unwrap_or_else(|| default_description(&state))
        .to_string()
        .into_response()
}

async fn serve_default_description(State(state): State<Shared>) -> Response {
    default_description(&state.lock().unwrap()).to_string().into_response()
}

async fn keys_of(State(state): State<Shared>) -> (StatusCode, String) {
    let state = {
        let mut state = state.lock().unwrap();
        state.asked += 1;
        state.clone()
    };
    if let Some(mut held) = state.held {
        while held.changed().await.is_ok() {}
    }
    (StatusCode::OK, json!({"keys": state.keys}).to_string())
}
