//! A shard's status on the wire: the only mapping between the message and [`replay::ShardStatus`].

use replay::{BlockedCaller, Counters, ShardStatus, TABLES_MAX, TableCounters, TableStatus};

use crate::v1;

/// The message of a status.
pub fn status_message(status: &ShardStatus) -> v1::ShardStatus {
    let Counters {
        chunks,
        duplicate_chunks,
        lost_chunks,
        steps,
        agent_steps,
        items_without_frames,
        surcharge,
    } = status.counters;
    v1::ShardStatus {
        id: status.id.clone(),
        incarnation: status.incarnation,
        bytes_used: status.bytes_used,
        allowance: status.allowance,
        writers_blocked: status.writers_blocked,
        counters: Some(v1::Counters {
            chunks,
            duplicate_chunks,
            lost_chunks,
            steps,
            agent_steps,
            inserts: status.inserts(),
            items_without_frames,
            surcharge,
        }),
        tables: status.tables.iter().map(table_message).collect(),
        configured: status.configured,
        finished: status.finished,
        bytes_max: status.bytes_max,
    }
}

fn table_message(table: &TableStatus) -> v1::TableStatus {
    let counters = &table.counters;
    v1::TableStatus {
        items: table.items,
        mass: table.mass,
        largest_priority: table.largest_priority,
        inserts: counters.inserts,
        evicted: counters.evicted,
        reclaimed_items: counters.reclaimed_items,
        samples: counters.samples,
        used_up: counters.used_up,
        updates: counters.updates,
        stale_updates: counters.stale_updates,
        removed_items: counters.removed_items,
        capacity: table.capacity,
    }
}

/// The inverse of [`status_message`]. Accepts any numbers, since a status is only reported.
pub fn status(message: v1::ShardStatus) -> ShardStatus {
    let counters = message.counters.unwrap_or_default();
    ShardStatus {
        id: message.id,
        incarnation: message.incarnation,
        configured: message.configured,
        finished: message.finished,
        bytes_used: message.bytes_used,
        bytes_max: message.bytes_max,
        allowance: message.allowance,
        writers_blocked: message.writers_blocked,
        counters: Counters {
            chunks: counters.chunks,
            duplicate_chunks: counters.duplicate_chunks,
            lost_chunks: counters.lost_chunks,
            steps: counters.steps,
            agent_steps: counters.agent_steps,
            items_without_frames: counters.items_without_frames,
            surcharge: counters.surcharge,
        },
        tables: message.tables.into_iter().take(TABLES_MAX).map(table).collect(),
    }
}

fn table(message: v1::TableStatus) -> TableStatus {
    TableStatus {
        items: message.items,
        capacity: message.capacity,
        mass: message.mass,
        largest_priority: message.largest_priority,
        counters: TableCounters {
            inserts: message.inserts,
            evicted: message.evicted,
            reclaimed_items: message.reclaimed_items,
            samples: message.samples,
            used_up: message.used_up,
            updates: message.updates,
            stale_updates: message.stale_updates,
            removed_items: message.removed_items,
        },
    }
}

/// The message of a blocked caller.
pub fn blocked_message(blocked: BlockedCaller) -> v1::BlockedCaller {
    let BlockedCaller { caller, blocked_on, blocked_seconds } = blocked;
    v1::BlockedCaller { caller, blocked_on, blocked_seconds }
}

/// The inverse of [`blocked_message`].
pub fn blocked(message: v1::BlockedCaller) -> BlockedCaller {
    let v1::BlockedCaller { caller, blocked_on, blocked_seconds } = message;
    BlockedCaller { caller, blocked_on, blocked_seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_the_wire() {
        let table = TableStatus {
            items: 3,
            capacity: 10,
            mass: 2.5,
            largest_priority: 1.5,
            counters: TableCounters {
                inserts: 11,
                evicted: 4,
                reclaimed_items: 2,
                samples: 90,
                used_up: 1,
                updates: 60,
                stale_updates: 5,
                removed_items: 1,
            },
        };
        let status_sent = ShardStatus {
            id: "a".into(),
            incarnation: 7,
            configured: true,
            finished: true,
            bytes_used: 100,
            bytes_max: 200,
            allowance: 40,
            writers_blocked: 2,
            counters: Counters {
                chunks: 1,
                duplicate_chunks: 2,
                lost_chunks: 3,
                steps: 4,
                agent_steps: 5,
                items_without_frames: 6,
                surcharge: 7,
            },
            tables: vec![table, TableStatus::default()],
        };
        assert_eq!(status(status_message(&status_sent)), status_sent);
        let blocked_sent =
            BlockedCaller { caller: "actor 3".into(), blocked_on: "allowance".into(), blocked_seconds: 1.5 };
        assert_eq!(blocked(blocked_message(blocked_sent.clone())), blocked_sent);
    }
}
