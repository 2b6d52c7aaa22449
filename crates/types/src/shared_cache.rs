//! A cache of values that are expensive to create and shared by concurrent users.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A cache of shared values with a limit on their total weight. Values in use stay in it, so that
/// the limit covers all existing values; of the rest, the least recently used are evicted.
pub struct SharedCache<K, V> {
    weight_max: usize,
    /// The most recently used entry is last.
    entries: Mutex<Vec<CacheEntry<K, V>>>,
}

struct CacheEntry<K, V> {
    key: K,
    value: Arc<V>,
    weight: usize,
}

impl<K, V> fmt::Debug for SharedCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCache").field("weight_max", &self.weight_max).finish_non_exhaustive()
    }
}

impl<K: PartialEq, V> SharedCache<K, V> {
    pub fn new(weight_max: usize) -> Self {
        Self { weight_max, entries: Mutex::default() }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<CacheEntry<K, V>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a key, which becomes the most recently used.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        let mut entries = self.entries();
        let at = entries.iter().position(|entry| entry.key == *key)?;
        entries[at..].rotate_left(1);
        entries.last().map(|entry| Arc::clone(&entry.value))
    }

    /// Adds or replaces the value of a key. `None` if the values in use leave no space for it.
    pub fn insert(&self, key: K, value: Arc<V>, weight: usize) -> Option<Arc<V>> {
        let mut entries = self.entries();
        let total =
            |entries: &[CacheEntry<K, V>]| entries.iter().map(|it| it.weight).sum::<usize>();
        while total(&entries) + weight > self.weight_max {
            let idle = entries.iter().position(|entry| Arc::strong_count(&entry.value) == 1)?;
            entries.remove(idle);
        }
        let kept = Arc::clone(&value);
        entries.push(CacheEntry { key, value, weight });
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_in_use_stay_and_the_least_recently_used_are_evicted() {
        let cache = SharedCache::new(10);
        let held = cache.insert("a", Arc::new(1), 4).unwrap();
        drop(cache.insert("b", Arc::new(2), 3));
        drop(cache.insert("c", Arc::new(3), 3));
        assert_eq!(cache.get(&"b").as_deref(), Some(&2));
        drop(cache.insert("d", Arc::new(4), 3));
        assert!(cache.get(&"c").is_none(), "it was used longest ago");
        assert!(cache.insert("e", Arc::new(5), 7).is_none(), "4 of 10 are in use");
        assert_eq!(*held, 1);
        assert_eq!(cache.get(&"a").as_deref(), Some(&1));
        drop(held);
        assert!(cache.insert("f", Arc::new(6), 10).is_some());
    }
}
