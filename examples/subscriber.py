"""Prints which gangs may be bound, and where. Needs nats-py, and nothing of Muster.

    python subscriber.py nats://127.0.0.1:4222 prod

Its place in the feed is kept under a durable name: started again, it goes on behind the last event it acknowledged, after
five seconds if it had one in hand. One event is under way at a time: so they come in the log's order, whatever happens.
What the fields mean stands in events/schema/GangPermitted.json.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter

import nats
import nats.errors
from nats.js.api import ConsumerConfig
from nats.js.errors import ServiceUnavailableError

DURABLE = "example-of-gangs"


async def main(url: str, cluster: str, inbox_prefix: str) -> None:
    connection = await nats.connect(
        url, error_cb=tell, inbox_prefix=inbox_prefix.encode(), allow_reconnect=True, max_reconnect_attempts=-1
    )
    feed = await connection.jetstream().pull_subscribe(
        f"muster-feed.{cluster}.GangPermitted.>",
        DURABLE,
        stream=f"muster-feed-{cluster}",
        config=ConsumerConfig(max_ack_pending=1, ack_wait=5),
    )
    while True:
        try:
            (message,) = await feed.fetch(1, timeout=5)
        except nats.errors.TimeoutError:
            continue  # nothing happened, or NATS is away
        except ServiceUnavailableError:
            await feed.consumer_info()  # raises NotFoundError where nothing will come any more
            await asyncio.sleep(1)
            continue  # its server is away, and another one is chosen
        event = json.loads(message.data)  # a CloudEvent: attributes, and the event itself as `data`
        nodes: Counter[str] = Counter()  # a node may be named more than once
        for node, pods in event["data"]["bindings"]:
            nodes[node] += len(pods)
        places = ", ".join(f"{count} on {node}" for node, count in nodes.items())
        print(f"{event['id']} {event['time']} {event['subject']}: {sum(nodes.values())} pods, {places}", flush=True)
        await message.ack()


async def tell(error: Exception) -> None:
    """Also while it connects, which it tries for ever."""
    print(f"{type(error).__name__}: {error}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Prints which gangs of a cluster may be bound, and where.")
    parser.add_argument("url", metavar="URL", help="of NATS: nats://127.0.0.1:4222")
    parser.add_argument("cluster", metavar="CLUSTER", help="its name in the log")
    hears = "where answers may come: a user hears its own inbox alone, such as _INBOX_subscriber"
    parser.add_argument("--inbox-prefix", default="_INBOX", help=hears)
    given = parser.parse_args()
    try:
        asyncio.run(main(given.url, given.cluster, given.inbox_prefix))
    except (nats.errors.Error, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        pass
