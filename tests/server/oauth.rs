//! Tokens of a trusted issuer: valid for their subject only, and never for more than was granted on this server.

use crate::harness::wait;
use crate::issuer::{Issuer, SigningKey, encoded, message};
use crate::principals::{
    FORBIDDEN, ME, Person, UNKNOWN, change, grant, id, items, refused, role, workspace,
};
use crate::test_server::{Api, World, printed};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const UNREACHABLE: (u16, &str) = (503, "auth.unavailable");
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// Why a token is refused, as it is told.
const ELSEWHERE: &str = "its audience (aud) is not this server";
const CLAIMS: &str = "the claims iss, aud, exp and sub are required";
const FORGED: &str = "its signature is invalid";
const KEY: &str = "its key id is unknown to its issuer";
const SIGNED: &str = "it must be signed with RS256, ES256 or EdDSA";
const UNREADABLE: &str = "it is not a valid JWT";
const KIND: &str = "its type is not an access token";

/// A server that trusts an issuer with one key.
struct Trusting {
    world: World,
    issuer: Issuer,
    key: SigningKey,
}

impl Trusting {
    async fn start() -> Self {
        let key = SigningKey::ed("first");
        let issuer = Issuer::with(&[&key]).await;
        let world = World::with(&["--oauth-issuer", &issuer.address]).await;
        Self { world, issuer, key }
    }

    fn claims(&self, subject: &str) -> Value {
        self.issuer.claims(self.world.address(), subject)
    }

    /// The API with a valid token of this subject.
    fn api(&self, subject: &str) -> Api {
        self.world.api(&self.key.sign(&self.claims(subject)))
    }

    async fn known(&self, name: &str, subject: &str) -> Value {
        let new = json!({"name": name, "kind": "user", "external_id": subject});
        self.world.owner.post("/v1/principals", new).await
    }

    /// A principal who may run code.
    async fn runner(&self, name: &str, subject: &str) -> Value {
        let principal = self.known(name, subject).await;
        let here = workspace(&self.world.owner).await;
        grant(&self.world.owner, &id(&principal), "USAGE", &here).await;
        principal
    }
}

fn with(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

fn without(mut claims: Value, name: &str) -> Value {
    claims.as_object_mut().unwrap().remove(name);
    claims
}

/// `execute_python` over `/mcp`.
async fn over_mcp(api: &Api, code: &str) -> Response {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let params = json!({"name": "execute_python", "arguments": {"code": code}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let request = api
        .request(Method::POST, "/mcp")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "execute_python");
    request.body(body.to_string()).send().await.unwrap()
}

fn challenge(response: &Response) -> &str {
    response.headers()["www-authenticate"].to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_issuer_no_token_is_taken_and_nothing_is_told_about_tokens() {
    let world = World::start().await;
    let key = SigningKey::ed("first");
    let issuer = Issuer::with(&[&key]).await;
    let nobody = world.api("");
    for path in [METADATA, &format!("{METADATA}/mcp")] {
        assert_eq!(nobody.call("GET", path, None).await.0, 404);
    }
    let new = json!({"name": "ann", "kind": "user", "external_id": "ann@login"});
    world.owner.post("/v1/principals", new).await;
    let token = world.api(&key.sign(&issuer.claims(world.address(), "ann@login")));
    refused(&token, "GET", ME, None, UNKNOWN).await;
    let response = over_mcp(&token, "1").await;
    assert_eq!((response.status().as_u16(), challenge(&response)), (401, "Bearer"));
    assert_eq!(issuer.asked(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_token_is_told_whose_tokens_are_taken() {
    let Trusting { world, issuer, .. } = Trusting::start().await;
    let nobody = world.api("");
    let expected = json!({
        "resource": format!("{}/mcp", world.address()),
        "authorization_servers": [issuer.address],
        "bearer_methods_supported": ["header"],
        "resource_name": "Belljar",
    });
    let link = format!("{}{METADATA}/mcp", world.address());
    for path in [METADATA, &format!("{METADATA}/mcp")] {
        assert_eq!(nobody.get(path).await, expected);
    }
    for who in [&nobody, &world.api("bj_nonsense"), &world.api("nonsense")] {
        let agents = over_mcp(who, "1").await;
        let people = who.request(Method::GET, ME).send().await.unwrap();
        for response in [agents, people] {
            assert_eq!(response.status(), 401);
            assert_eq!(challenge(&response), format!("Bearer resource_metadata=\"{link}\""));
        }
    }
    // Keys are as good as before.
    assert_eq!(world.owner.get(ME).await["name"], "owner");
}

// proves P-063
#[tokio::test(flavor = "multi_thread")]
async fn t51_a_token_is_who_it_names_and_may_what_was_granted_here() {
    let keys = [SigningKey::rsa("r"), SigningKey::ec("e"), SigningKey::ed("d")];
    let issuer = Issuer::with(&[&keys[0], &keys[1], &keys[2]]).await;
    let world = World::with(&["--oauth-issuer", &issuer.address]).await;
    let new = json!({"name": "ann", "kind": "user", "external_id": "ann@login"});
    let ann = world.owner.post("/v1/principals", new).await;
    // Whatever else the issuer says of her is its own business.
    let mut claims = issuer.claims(world.address(), "ann@login");
    claims["scope"] = json!("admin OWNERSHIP USAGE");
    claims["roles"] = json!(["owner"]);
    claims["workspace"] = json!("default");
    let tokens: Vec<Api> = keys.iter().map(|key| world.api(&key.sign(&claims))).collect();
    for token in &tokens {
        assert_eq!(token.get(ME).await["id"], ann["id"]);
        refused(token, "POST", "/v1/execute", Some(json!({"code": "1"})), FORBIDDEN).await;
        refused(token, "GET", "/v1/principals", None, FORBIDDEN).await;
    }
    grant(&world.owner, &id(&ann), "USAGE", &workspace(&world.owner).await).await;
    for token in &tokens {
        assert_eq!(token.execute("6 * 7").await["value"], 42);
        let answered = over_mcp(token, "6 * 7").await;
        assert_eq!(answered.status(), 200);
        let text = answered.text().await.unwrap();
        assert!(text.contains("\"result\":42"), "{text}");
    }
    let audit = items(&world.owner, "/v1/audit?action=execution.run").await;
    assert_eq!(audit.len(), 6);
    assert!(audit.iter().all(|line| line["principal"] == ann["id"] && line["key"].is_null()));
    assert_eq!(issuer.asked(), 1, "keys are remembered");
}

/// What is not a token of the issuer for this server and this moment: why, what, and the token.
fn bad_tokens(here: &Trusting, subject: &str) -> Vec<(&'static str, &'static str, String)> {
    let (key, stranger) = (&here.key, SigningKey::ed("first"));
    let claims = here.claims(subject);
    let now = claims["iat"].as_i64().unwrap();
    let good = key.sign(&claims);
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let header = signed.split_once('.').unwrap().0;
    let other = encoded(with(claims.clone(), "sub", json!("owner@login")).to_string());
    let headed =
        |name: &str, value: Value| key.sign_under(&with(key.header(), name, value), &claims);
    let unsigned = |algorithm: &str| {
        let header = json!({"typ": "at+jwt", "alg": algorithm, "kid": "first"});
        format!("{}.", message(&header, &claims))
    };
    let claim = |name: &str, value: Value| key.sign(&with(claims.clone(), name, value));
    let lacking = |name: &str| key.sign(&without(claims.clone(), name));
    let server = here.world.address();
    let issuers = json!([here.issuer.address, "https://other.example"]);
    let own = with(stranger.header(), "jwk", stranger.public());
    let raw = |header: &str| key.sign_text(header, &claims.to_string());
    let twice = claims.to_string().replacen('{', "{\"sub\":\"owner@login\",", 1);
    let twice = key.sign_text(&key.header().to_string(), &twice);
    vec![
        (ELSEWHERE, "another audience", claim("aud", json!("https://other.example/mcp"))),
        (ELSEWHERE, "a longer audience", claim("aud", json!(format!("{server}/mcp/x")))),
        (ELSEWHERE, "audiences of others", claim("aud", json!(["a", server]))),
        (CLAIMS, "no audience", lacking("aud")),
        ("its issuer (iss)", "another issuer", claim("iss", json!("https://other.example"))),
        (CLAIMS, "several issuers", claim("iss", issuers)),
        (CLAIMS, "no issuer", lacking("iss")),
        ("it has expired", "over", claim("exp", json!(now - 60))),
        (CLAIMS, "an end that is no number", claim("exp", json!("9999999999"))),
        (CLAIMS, "an end that is in no calendar", claim("exp", json!(1e18))),
        (CLAIMS, "no end", lacking("exp")),
        ("not valid yet", "not yet", claim("nbf", json!(now + 120))),
        (CLAIMS, "a subject that is no text", claim("sub", json!(1))),
        (CLAIMS, "no subject", lacking("sub")),
        (FORGED, "another subject", format!("{header}.{other}.{signature}")),
        (FORGED, "a signature that is cut", good[..good.len() - 2].to_owned()),
        (FORGED, "no signature", format!("{signed}.")),
        (FORGED, "a key of somebody else under the same name", stranger.sign(&claims)),
        (FORGED, "a key that it brings along", stranger.sign_under(&own, &claims)),
        (KEY, "a key of another kind", SigningKey::rsa("first").sign(&claims)),
        (KEY, "a key that is not known", headed("kid", json!("second"))),
        (KEY, "no key", key.sign_under(&without(key.header(), "kid"), &claims)),
        (KEY, "another algorithm", headed("alg", json!("ES256"))),
        (SIGNED, "a public key as a secret", key.hmac_with_public(&claims)),
        (SIGNED, "an algorithm that is not taken", headed("alg", json!("RS512"))),
        (UNREADABLE, "alg none", unsigned("none")),
        (UNREADABLE, "alg None", unsigned("None")),
        (FORGED, "alg EdDSA without a signature", unsigned("EdDSA")),
        (KIND, "something to understand", headed("crit", json!(["exp"]))),
        (KIND, "a token for something else", headed("typ", json!("logout+jwt"))),
        (UNREADABLE, "two parts", signed.to_owned()),
        (UNREADABLE, "text", "nonsense".to_owned()),
        (UNREADABLE, "nothing", "..".to_owned()),
        (
            UNREADABLE,
            "an algorithm that is said twice",
            raw(r#"{"typ":"at+jwt","alg":"EdDSA","alg":"none","kid":"first"}"#),
        ),
        (UNREADABLE, "an algorithm in small letters", headed("alg", json!("eddsa"))),
        (UNREADABLE, "several algorithms", headed("alg", json!(["EdDSA", "none"]))),
        (SIGNED, "RSA with another padding", headed("alg", json!("PS256"))),
        (UNREADABLE, "a header that is nested", raw(&"[".repeat(8_000))),
        (UNREADABLE, "a header that is no object", raw("\"EdDSA\"")),
        (KEY, "a path as the key", headed("kid", json!("../../../../dev/null"))),
        (KEY, "a query as the key", headed("kid", json!("first' OR '1'='1"))),
        (KEY, "a name with something after it", headed("kid", json!("first\u{0}"))),
        (KEY, "an empty name", headed("kid", json!(""))),
        (UNREADABLE, "a name that is no text", headed("kid", json!(["first"]))),
        (KEY, "a very long name", headed("kid", json!("k".repeat(8_000)))),
        (
            FORGED,
            "a chain of certificates",
            stranger.sign_under(&with(stranger.header(), "x5c", json!(["MIIB"])), &claims),
        ),
        (UNREADABLE, "five parts", format!("{good}.a.b")),
        (UNREADABLE, "padding", format!("{}=.{}", header, good.split_once('.').unwrap().1)),
        (UNREADABLE, "a space inside", format!(" {good} x")),
        (CLAIMS, "a subject that is said twice", twice),
        (CLAIMS, "a beginning that is no number", claim("nbf", json!("9999999999"))),
        ("not valid yet", "a beginning in a million years", claim("nbf", json!(3e13))),
        ("invalid access token", "an audience that is an object", claim("aud", json!({"a": 1}))),
        (
            "invalid access token",
            "an audience inside a list",
            claim("aud", json!([[claims["aud"]]])),
        ),
        (CLAIMS, "an end before 1970", claim("exp", json!(-1))),
        ("it exceeds 16384 bytes", "a long one", format!("{good}{}", "A".repeat(16 * 1024))),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn t51_a_token_that_is_not_for_this_server_and_this_moment_is_refused() {
    let here = Trusting::start().await;
    here.runner("ann", "ann@login").await;
    here.runner("chief", "owner@login").await;
    for (why, what, token) in bad_tokens(&here, "ann@login") {
        let bad = here.world.api(&token);
        let problem =
            refused(&bad, "POST", "/v1/execute", Some(json!({"code": "1"})), UNKNOWN).await;
        assert!(problem.contains(why), "{what}: {problem}");
        assert_eq!(over_mcp(&bad, "1").await.status(), 401, "{what}");
    }
    assert_eq!(items(&here.world.owner, "/v1/executions").await, Vec::<Value>::new());
    // The twins: several audiences, other names of the kind, clocks that differ a little.
    let claims = here.claims("ann@login");
    let now = claims["iat"].as_i64().unwrap();
    let audiences = json!(["https://other.example", claims["aud"]]);
    let key = &here.key;
    let fine = [
        key.sign(&claims),
        key.sign(&with(claims.clone(), "aud", audiences)),
        key.sign(&with(claims.clone(), "exp", json!(now - 5))),
        key.sign(&with(claims.clone(), "nbf", json!(now + 10))),
        key.sign(&without(claims.clone(), "nbf")),
        key.sign_under(&with(key.header(), "typ", json!("JWT")), &claims),
        key.sign_under(&without(key.header(), "typ"), &claims),
    ];
    for token in fine {
        assert_eq!(here.world.api(&token).execute("6 * 7").await["value"], 42, "{token}");
    }
}

/// A web server that counts who comes.
async fn counting() -> (String, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&count);
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    (address, count)
}

#[tokio::test(flavor = "multi_thread")]
async fn t51_no_url_in_a_token_is_requested() {
    let here = Trusting::start().await;
    here.runner("ann", "ann@login").await;
    let (elsewhere, asked) = counting().await;
    let stranger = SigningKey::ed("first");
    let claims = here.claims("ann@login");
    for name in ["jku", "x5u"] {
        for key in [&stranger, &SigningKey::ed("unknown")] {
            let header = with(key.header(), name, json!(format!("{elsewhere}/keys")));
            let bad = here.world.api(&key.sign_under(&header, &claims));
            refused(&bad, "GET", ME, None, UNKNOWN).await;
        }
        // The twin: the issuer itself may name one, and it is not looked at.
        let header = with(here.key.header(), name, json!(format!("{elsewhere}/keys")));
        let good = here.world.api(&here.key.sign_under(&header, &claims));
        assert_eq!(good.get(ME).await["name"], "ann");
    }
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn t51_many_malformed_or_duplicate_keys_of_the_issuer_admit_no_other_token() {
    let (key, double, rsa) =
        (SigningKey::ed("first"), SigningKey::ed("first"), SigningKey::rsa("r"));
    let issuer = Issuer::with(&[&key]).await;
    let world = World::with(&["--oauth-issuer", &issuer.address]).await;
    let new = json!({"name": "ann", "kind": "user", "external_id": "ann@login"});
    world.owner.post("/v1/principals", new).await;
    let odd = |changes: Value| {
        let mut odd = rsa.public();
        odd.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        odd
    };
    let mut keys = vec![
        json!(null),
        json!([]),
        json!({"kty": "oct", "kid": "first", "k": encoded("secret"), "alg": "HS256"}),
        odd(json!({"kid": "none", "alg": "none"})),
        odd(json!({"kid": "one", "e": encoded([1])})),
        odd(json!({"kid": "small", "n": encoded([0xc5; 64])})),
        odd(json!({"kid": "large", "n": encoded(vec![0xc5; 32 * 1024])})),
        key.public(),
        double.public(),
    ];
    keys.extend((0..500).map(|number| {
        json!({"kty": "EC", "crv": "P-256", "kid": format!("k{number}"),
        "x": encoded([1; 32]), "y": encoded([2; 32])})
    }));
    issuer.set_raw_keys(keys);
    let claims = issuer.claims(world.address(), "ann@login");
    assert_eq!(world.api(&key.sign(&claims)).get(ME).await["name"], "ann");
    // Of two keys with one name the first is the one.
    refused(&world.api(&double.sign(&claims)), "GET", ME, None, UNKNOWN).await;
    for kid in ["none", "one", "small", "large", "k1"] {
        for algorithm in ["RS256", "ES256", "HS256", "none"] {
            let header = json!({"typ": "at+jwt", "alg": algorithm, "kid": kid});
            // With an exponent of one, a signature is the padded digest itself.
            let forged = format!("{}.{}", message(&header, &claims), encoded([0; 256]));
            refused(&world.api(&forged), "GET", ME, None, UNKNOWN).await;
        }
    }
    assert_eq!(world.api(&key.sign(&claims)).get(ME).await["name"], "ann");
}

#[tokio::test(flavor = "multi_thread")]
async fn t51_a_subject_that_only_the_issuer_knows_has_no_access() {
    let here = Trusting::start().await;
    let owner = &here.world.owner;
    let problem = refused(&here.api("eve@login"), "GET", ME, None, FORBIDDEN).await;
    assert!(problem.contains("eve@login"), "{problem}");
    // A name is not an external_id, and a role is no subject.
    refused(&here.api("owner"), "GET", ME, None, FORBIDDEN).await;
    let runners = json!({"name": "runners", "kind": "role", "external_id": "runners@login"});
    owner.post("/v1/principals", runners).await;
    refused(&here.api("runners@login"), "GET", ME, None, FORBIDDEN).await;
    // Another workspace decides nothing about this one, and is not entered with tokens.
    let other = owner.post("/v1/workspaces", json!({"name": "other"})).await;
    let other = here.world.api(other["key"]["secret"].as_str().unwrap());
    let eve = json!({"name": "eve", "kind": "user", "external_id": "eve@login"});
    other.post("/v1/principals", eve.clone()).await;
    refused(&here.api("eve@login"), "GET", ME, None, FORBIDDEN).await;
    owner.post("/v1/principals", eve).await;
    assert_eq!(here.api("eve@login").get(ME).await["name"], "eve");
}

#[tokio::test(flavor = "multi_thread")]
async fn t51_a_removed_principal_is_refused_at_once_although_the_token_is_valid() {
    let here = Trusting::start().await;
    let owner = &here.world.owner;
    let (ann, bob) = (here.known("ann", "ann@login").await, here.known("bob", "bob@login").await);
    let path = |who: &Value| format!("/v1/principals/{}", id(who));
    let token = here.api("ann@login");
    assert_eq!(token.get(ME).await["name"], "ann");
    // Her external_id belongs to no other principal.
    let hers = json!({"external_id": "ann@login"});
    refused(owner, "PATCH", &path(&bob), Some(hers.clone()), (409, "name.taken")).await;
    let twice = Some(json!({"name": "ann2", "kind": "user", "external_id": "ann@login"}));
    refused(owner, "POST", "/v1/principals", twice, (409, "name.taken")).await;
    change(owner, &path(&ann), json!({"external_id": ""})).await;
    refused(&token, "GET", ME, None, FORBIDDEN).await;
    change(owner, &path(&bob), hers).await;
    assert_eq!(token.get(ME).await["name"], "bob", "it names whom the owner says");
    owner.delete(&path(&bob)).await;
    refused(&token, "GET", ME, None, FORBIDDEN).await;
}

// proves U-072
#[tokio::test(flavor = "multi_thread")]
async fn t257_a_url_made_with_a_token_ends_with_the_subject_and_the_principal() {
    let here = Trusting::start().await;
    let ann = here.runner("ann", "ann@login").await;
    let record = here.api("ann@login").execute("open('a.csv', 'w').write('hers')").await;
    let url = record["files_out"][0]["url"].as_str().unwrap().to_owned();
    let stranger = here.world.api("");
    let open = async |url: &str| {
        let opened = stranger.request(Method::GET, url).send().await.unwrap();
        (opened.status().as_u16(), opened.text().await.unwrap())
    };
    assert_eq!(open(&url).await, (200, "hers".to_owned()));
    let owner = id(&here.world.owner.get(ME).await);
    assert_eq!(open(&url.replace(&id(&ann), &owner)).await.0, 401, "of another principal");
    let path = format!("/v1/principals/{}", id(&ann));
    change(&here.world.owner, &path, json!({"external_id": "other@login"})).await;
    assert_eq!(open(&url).await.0, 401, "the principal is another person now");
    change(&here.world.owner, &path, json!({"external_id": "ann@login"})).await;
    assert_eq!(open(&url).await.0, 200);
    here.world.owner.delete(&path).await;
    assert_eq!(open(&url).await.0, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_makes_no_key_and_a_key_of_the_same_principal_does() {
    let here = Trusting::start().await;
    let ann = Person::new(&here.world, "ann").await;
    change(&here.world.owner, &ann.path(), json!({"external_id": "ann@login"})).await;
    let here_all = workspace(&here.world.owner).await;
    grant(&here.world.owner, &ann.id, "OWNERSHIP", &here_all).await;
    let token = here.api("ann@login");
    for (path, body) in [
        ("/v1/keys", json!({"name": "k"})),
        ("/v1/keys", json!({"name": "k", "principal": token.get(ME).await["id"]})),
        ("/v1/workspaces", json!({"name": "other"})),
    ] {
        refused(&token, "POST", path, Some(body.clone()), FORBIDDEN).await;
        ann.post(path, body).await;
    }
    // Everything else of an owner is hers with the token, too.
    role(&token, "runners").await;
    token.delete(&ann.key_path()).await;
    refused(&ann, "GET", ME, None, UNKNOWN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_issuer_a_token_cannot_be_checked_and_a_key_can() {
    let key = SigningKey::ed("first");
    let gone = Issuer::with(&[&key]).await;
    let place = gone.address.trim_start_matches("http://").parse().unwrap();
    let world = World::with(&["--oauth-issuer", &gone.address]).await;
    let new = json!({"name": "ann", "kind": "user", "external_id": "ann@login"});
    world.owner.post("/v1/principals", new).await;
    let token = world.api(&key.sign(&gone.claims(world.address(), "ann@login")));
    drop(gone);
    tokio::task::yield_now().await;
    let problem = refused(&token, "GET", ME, None, UNREACHABLE).await;
    assert!(problem.contains("the keys of its issuer are unavailable"), "{problem}");
    assert_eq!(over_mcp(&token, "1").await.status(), 503);
    world.owner.get(ME).await;
    let _back = Issuer::at(place, &[&key]).await;
    until_good(&token).await;
}

/// Waits until the issuer is asked again.
async fn until_good(token: &Api) {
    let is_good = async || token.call("GET", ME, None).await.0 == 200;
    wait::within(Duration::from_secs(8), "the issuer is asked again", is_good).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_of_the_issuer_is_taken_up_and_an_old_one_given_up() {
    let here = Trusting::start().await;
    here.known("ann", "ann@login").await;
    let old = here.api("ann@login");
    old.get(ME).await;
    let second = SigningKey::ec("second");
    here.issuer.set_keys(&[&second]);
    let new = here.world.api(&second.sign(&here.claims("ann@login")));
    until_good(&new).await;
    refused(&old, "GET", ME, None, UNKNOWN).await;
    // Invented key ids do not cause a request to the issuer for each.
    let before = here.issuer.asked();
    for number in 0..200 {
        let unknown = SigningKey::ed(&format!("made-up-{number}"));
        let token = here.world.api(&unknown.sign(&here.claims("ann@login")));
        refused(&token, "GET", ME, None, UNKNOWN).await;
    }
    assert!(here.issuer.asked() - before <= 3, "{}", here.issuer.asked());
    new.get(ME).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_ask_at_once_and_hang_up_are_one_question_to_the_issuer() {
    let here = Trusting::start().await;
    here.known("ann", "ann@login").await;
    let release = here.issuer.hold_keys();
    let token = here.api("ann@login");
    // They come one after the other, so that each finds that the one before has gone.
    for _ in 0..10 {
        let ask = |api: Api| async move { api.call("GET", ME, None).await };
        let mut asking: JoinSet<_> = (0..5).map(|_| ask(token.clone())).collect();
        wait::until("the issuer is asked", async || here.issuer.asked() > 0).await;
        let soon = tokio::time::timeout(Duration::from_millis(50), asking.join_next());
        assert!(soon.await.is_err(), "the issuer has not answered yet");
    }
    drop(release);
    assert_eq!(token.get(ME).await["name"], "ann");
    assert_eq!(here.issuer.asked(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_calls_itself_otherwise_or_leads_elsewhere_is_not_believed() {
    let elsewhere = Issuer::with(&[]).await;
    // `NAME` is how the issuer was named.
    let wrong = [
        ("https://other.example", "NAME/keys"),
        ("NAME/", "NAME/keys"),
        // Somewhere else on this machine, which only the operator could name.
        ("NAME", &format!("{}/keys", elsewhere.address)),
        ("NAME", "http://login.example.org/keys"),
        ("NAME", "file:///etc/passwd"),
        ("NAME", "nowhere"),
    ];
    for (name, keys) in wrong {
        let here = Trusting::start().await;
        here.known("ann", "ann@login").await;
        let named = |text: &str| text.replace("NAME", &here.issuer.address);
        here.issuer.describe(json!({"issuer": named(name), "jwks_uri": named(keys)}));
        refused(&here.api("ann@login"), "GET", ME, None, UNREACHABLE).await;
        assert_eq!(here.issuer.asked() + elsewhere.asked(), 0, "{name} {keys}");
    }
    let first = Trusting::start().await;
    first.known("ann", "ann@login").await;
    first.issuer.redirect();
    refused(&first.api("ann@login"), "GET", ME, None, UNREACHABLE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t60_a_stream_ends_with_its_token_and_with_its_principal() {
    let here = Trusting::start().await;
    let ann = here.runner("ann", "ann@login").await;
    let code = "import time\nfor i in range(80): print(i, flush=True); time.sleep(0.1)";
    let soon = here.claims("ann@login")["iat"].as_i64().unwrap() - 30 + 3;
    let short = with(here.claims("ann@login"), "exp", json!(soon));
    let (short, long) = (here.world.api(&here.key.sign(&short)), here.api("ann@login"));
    let begun = short.request(Method::POST, "/v1/execute").header("prefer", "respond-async");
    let begun = begun.header("content-type", "application/json");
    let begun = begun.body(json!({"code": code}).to_string()).send().await.unwrap();
    assert_eq!(begun.status(), 202);
    let record: Value = serde_json::from_slice(&begun.bytes().await.unwrap()).unwrap();
    let path = format!("/v1/executions/{}/events", id(&record));
    let open = async |api: &Api| api.request(Method::GET, &path).send().await.unwrap();
    let (mut ends, mut stays) = (open(&short).await, open(&long).await);
    let (began, mut heard) = (Instant::now(), String::new());
    while let Ok(Some(_)) = ends.chunk().await {
        assert!(began.elapsed() < Duration::from_secs(6), "it is told on");
    }
    refused(&short, "GET", ME, None, UNKNOWN).await;
    heard += &String::from_utf8_lossy(&stays.chunk().await.unwrap().unwrap());
    assert!(heard.contains("data:"), "another token of hers hears on");
    change(&here.world.owner, &format!("/v1/principals/{}", id(&ann)), json!({"external_id": ""}))
        .await;
    let unlinked = Instant::now();
    while let Ok(Some(_)) = stays.chunk().await {
        assert!(unlinked.elapsed() < Duration::from_secs(4), "it is told on");
    }
    let events = open(&here.world.owner).await.text().await.unwrap();
    assert!(events.contains("succeeded"), "what was begun goes on");
}

fn files_below(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn t52_a_token_is_in_no_log_no_record_and_no_sandbox() {
    let here = Trusting::start().await;
    here.runner("ann", "ann@login").await;
    let good = here.key.sign(&here.claims("ann@login"));
    let bad = SigningKey::ed("first").sign(&here.claims("ann@login"));
    let code = "import os, glob\nprint(dict(os.environ))\nfor name in glob.glob('/proc/self/*'):\n    \
                try: print(open(name).read())\n    except Exception: pass";
    let ran = here.world.api(&good).execute(code).await;
    assert_eq!(ran["status"], "succeeded");
    refused(&here.world.api(&bad), "GET", ME, None, UNKNOWN).await;
    assert!(here.world.log().contains("/v1/execute"));
    let files = files_below(here.world.data.path());
    assert!(files.contains(&here.world.database()));
    for token in [&good, &bad] {
        for part in token.split('.').skip(1) {
            assert!(!printed(&ran).contains(part));
            let has_it = |bytes: &[u8]| bytes.windows(part.len()).any(|it| it == part.as_bytes());
            for file in &files {
                assert!(!has_it(&std::fs::read(file).unwrap()), "{}", file.display());
            }
        }
    }
}

#[test]
fn an_issuer_that_could_be_overheard_is_no_issuer() {
    let start = |options: &[&str]| {
        let data = tempfile::tempdir().unwrap();
        let mut command = crate::harness::belljar(&["serve", "--listen", "127.0.0.1:0"]);
        command.args(options).env("BELLJAR_RECORDS", data.path()).output().unwrap()
    };
    let plain = start(&["--oauth-issuer", "http://login.example.org"]);
    assert_eq!(plain.status.code(), Some(2));
    let said = crate::harness::stderr(&plain);
    assert!(said.contains("must start with https"), "{said}");
    let half = start(&["--oauth-audience", "https://belljar.example.org/mcp"]);
    assert_eq!(half.status.code(), Some(2));
}
