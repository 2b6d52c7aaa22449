//! Requests with an idempotency key: executed once, however often they are sent.

use crate::world::{World, id, moment};
use belljar_db::{ClaimOutcome, IdempotencyKey, StoredResponse};
use tokio::task::JoinSet;
use types::ExecutionId;

const FINGERPRINT: [u8; 32] = [1; 32];

fn request(world: &World, key: &str) -> IdempotencyKey {
    IdempotencyKey { workspace: world.home, principal: world.alice, key: key.into() }
}

async fn claim(world: &World, key: &IdempotencyKey) -> ClaimOutcome {
    let key = key.clone();
    world.write(move |tx| tx.claim_request(&key, &FINGERPRINT, moment(0))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_who_send_the_same_at_once_one_does_it() {
    let world = World::new().await;
    let mut tries = JoinSet::new();
    for _ in 0..50 {
        let (db, key) = (world.db.clone(), request(&world, "k"));
        tries.spawn(async move {
            db.write(move |tx| tx.claim_request(&key, &FINGERPRINT, moment(0))).await.unwrap()
        });
    }
    let claims = tries.join_all().await;
    assert_eq!(claims.iter().filter(|claim| **claim == ClaimOutcome::Claimed).count(), 1);
    assert_eq!(claims.iter().filter(|claim| **claim == ClaimOutcome::Pending(None)).count(), 49);
}

#[tokio::test]
async fn a_repeated_claim_gets_the_state_of_the_first() {
    let world = World::new().await;
    let key = request(&world, "k");
    assert_eq!(claim(&world, &key).await, ClaimOutcome::Claimed);
    let run = ExecutionId::new(id());
    let linked = key.clone();
    world.write(move |tx| tx.link_request(&linked, run)).await;
    assert_eq!(claim(&world, &key).await, ClaimOutcome::Pending(Some(run)));
    let reply =
        StoredResponse { status: 201, content_type: "text/plain".into(), body: b"done".into() };
    let (done, said) = (key.clone(), reply.clone());
    world.write(move |tx| tx.complete_request(&done, &said)).await;
    assert_eq!(claim(&world, &key).await, ClaimOutcome::Completed(reply.clone()));
    let released = key.clone();
    world.write(move |tx| tx.release_request(&released)).await;
    assert_eq!(
        claim(&world, &key).await,
        ClaimOutcome::Completed(reply),
        "an answer is not taken back"
    );
}

#[tokio::test]
async fn a_key_that_stands_for_another_request_is_refused() {
    let world = World::new().await;
    let key = request(&world, "k");
    claim(&world, &key).await;
    let again = key.clone();
    let other = world.write(move |tx| tx.claim_request(&again, &[2; 32], moment(0))).await;
    assert_eq!(other, ClaimOutcome::Mismatch);
    let released = key.clone();
    world.write(move |tx| tx.release_request(&released)).await;
    let other = world.write(move |tx| tx.claim_request(&key, &[2; 32], moment(0))).await;
    assert_eq!(other, ClaimOutcome::Claimed);
}

#[tokio::test]
async fn t213_a_request_that_has_started_an_execution_is_not_released() {
    let world = World::new().await;
    let (started, refused) = (request(&world, "started"), request(&world, "refused"));
    let release = async |key: &IdempotencyKey| {
        let key = key.clone();
        world.write(move |tx| tx.release_request(&key)).await;
    };
    claim(&world, &started).await;
    let (run, linked) = (ExecutionId::new(id()), started.clone());
    world.write(move |tx| tx.link_request(&linked, run)).await;
    release(&started).await;
    assert_eq!(claim(&world, &started).await, ClaimOutcome::Pending(Some(run)));
    // The twin: one that has started nothing can be sent again.
    claim(&world, &refused).await;
    release(&refused).await;
    assert_eq!(claim(&world, &refused).await, ClaimOutcome::Claimed);
}

#[tokio::test]
async fn a_restart_interrupts_a_request_unless_an_execution_can_tell() {
    let world = World::new().await;
    let (bare, linked) = (request(&world, "bare"), request(&world, "linked"));
    claim(&world, &bare).await;
    claim(&world, &linked).await;
    let (run, key) = (ExecutionId::new(id()), linked.clone());
    world.write(move |tx| tx.link_request(&key, run)).await;
    let world = world.restart();
    assert_eq!(world.write(|tx| tx.interrupt_all_requests()).await, 1);
    assert_eq!(claim(&world, &bare).await, ClaimOutcome::Interrupted);
    assert_eq!(claim(&world, &linked).await, ClaimOutcome::Pending(Some(run)));
}

#[tokio::test]
async fn the_same_key_of_another_principal_or_route_is_another() {
    let world = World::new().await;
    let key = request(&world, "k");
    claim(&world, &key).await;
    let neighbour = IdempotencyKey { principal: world.mallory, ..key.clone() };
    let elsewhere = IdempotencyKey { workspace: world.other, ..key };
    assert_eq!(claim(&world, &neighbour).await, ClaimOutcome::Claimed);
    assert_eq!(claim(&world, &elsewhere).await, ClaimOutcome::Claimed);
}
