//! A queue in which keys, such as callers, take turns, so that many items of one key delay an item
//! of another key by one item only.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Items of one key are returned in the order in which they came. A key without items takes no
/// memory.
#[derive(Debug)]
pub struct TurnQueue<K, T> {
    keys: HashMap<K, KeyItems<T>>,
    /// The keys that have items, by their turn.
    turns: BTreeMap<u64, K>,
    /// The next ticket or turn.
    next: u64,
    len: usize,
}

#[derive(Debug)]
struct KeyItems<T> {
    turn: u64,
    /// Never empty.
    items: BTreeMap<u64, T>,
}

impl<K, T> Default for TurnQueue<K, T> {
    fn default() -> Self {
        Self { keys: HashMap::new(), turns: BTreeMap::new(), next: 0, len: 0 }
    }
}

impl<K: Copy + Eq + Hash, T> TurnQueue<K, T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of items of one key.
    pub fn len_of(&self, key: K) -> usize {
        self.keys.get(&key).map_or(0, |found| found.items.len())
    }

    /// Adds an item behind those of its key, and returns the ticket that removes it. The turn of a
    /// key without items comes after one turn of each other key.
    pub fn push(&mut self, key: K, item: T) -> u64 {
        let ticket = self.count();
        if !self.keys.contains_key(&key) {
            self.add_turn(key, BTreeMap::new());
        }
        if let Some(found) = self.keys.get_mut(&key) {
            found.items.insert(ticket, item);
            self.len += 1;
        }
        ticket
    }

    /// Takes the oldest item of the key whose turn it is.
    pub fn pop(&mut self) -> Option<(K, T)> {
        let (_, key) = self.turns.pop_first()?;
        let mut items = self.keys.remove(&key)?.items;
        let (_, item) = items.pop_first()?;
        self.len -= 1;
        if !items.is_empty() {
            self.add_turn(key, items);
        }
        Some((key, item))
    }

    /// Takes an item that still waits.
    pub fn remove(&mut self, key: K, ticket: u64) -> Option<T> {
        let found = self.keys.get_mut(&key)?;
        let item = found.items.remove(&ticket)?;
        self.len -= 1;
        if found.items.is_empty() {
            let turn = found.turn;
            self.turns.remove(&turn);
            self.keys.remove(&key);
        }
        Some(item)
    }

    /// Takes the newest item of the key with the most items, if it has at least `least`. Looks at
    /// all keys.
    pub fn pop_newest_of_longest(&mut self, least: usize) -> Option<T> {
        let lengths = self.keys.iter().map(|(key, found)| (found.items.len(), *key));
        let (_, key) = lengths.max_by_key(|(len, _)| *len).filter(|(len, _)| *len >= least)?;
        let (ticket, _) = self.keys.get(&key)?.items.last_key_value()?;
        let ticket = *ticket;
        self.remove(key, ticket)
    }

    fn add_turn(&mut self, key: K, items: BTreeMap<u64, T>) {
        let turn = self.count();
        self.turns.insert(turn, key);
        self.keys.insert(key, KeyItems { turn, items });
    }

    fn count(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(queue: &mut TurnQueue<char, u32>) -> Vec<(char, u32)> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn keys_take_turns_and_the_items_of_a_key_keep_their_order() {
        let mut queue = TurnQueue::default();
        for number in 1..=4 {
            queue.push('a', number);
        }
        queue.push('b', 5);
        queue.push('c', 6);
        queue.push('c', 7);
        let all = [('a', 1), ('b', 5), ('c', 6), ('a', 2), ('c', 7), ('a', 3), ('a', 4)];
        assert_eq!((queue.len(), queue.len_of('a'), queue.len_of('d')), (7, 4, 0));
        assert_eq!(order(&mut queue), all);
    }

    #[test]
    fn a_key_that_comes_back_waits_for_one_item_of_each_other_key() {
        let mut queue = TurnQueue::default();
        queue.push('a', 1);
        queue.push('b', 2);
        queue.push('b', 3);
        assert_eq!(queue.pop(), Some(('a', 1)));
        queue.push('a', 4);
        assert_eq!(order(&mut queue), [('b', 2), ('a', 4), ('b', 3)]);
    }

    #[test]
    fn a_queue_without_items_has_no_keys_whatever_took_them() {
        let mut queue = TurnQueue::default();
        for key in 0..1_000 {
            let ticket = queue.push(key, ());
            match key % 3 {
                0 => assert_eq!(queue.remove(key, ticket), Some(())),
                1 => assert_eq!(queue.pop(), Some((key, ()))),
                _ => assert_eq!(queue.pop_newest_of_longest(1), Some(())),
            }
            assert_eq!(queue.remove(key, ticket), None);
        }
        assert!(queue.is_empty() && queue.keys.is_empty() && queue.turns.is_empty());
    }

    #[test]
    fn the_longest_key_loses_its_newest_item_and_a_short_one_loses_none() {
        let mut queue = TurnQueue::default();
        for number in 0..3 {
            queue.push('a', number);
        }
        queue.push('b', 3);
        assert_eq!(queue.pop_newest_of_longest(4), None);
        assert_eq!(queue.pop_newest_of_longest(2), Some(2));
        assert_eq!(order(&mut queue), [('a', 0), ('b', 3), ('a', 1)]);
    }
}
