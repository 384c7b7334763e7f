"""Prints which gangs may be bound, and where. Needs nats-py, and nothing of Muster.

    python subscriber.py nats://127.0.0.1:4222 prod

Its place in the feed is kept under a durable name: started again, it goes on behind the last event it acknowledged.
What the fields mean stands in events/schema/GangPermitted.json.
"""

import asyncio
import json
import sys
from collections import Counter

import nats

DURABLE = "example-subscriber"


async def main(url: str, cluster: str) -> None:
    connection = await nats.connect(url)
    feed = await connection.jetstream().subscribe(
        f"muster-feed.{cluster}.GangPermitted.>", stream=f"muster-feed-{cluster}", durable=DURABLE, manual_ack=True
    )
    async for message in feed.messages:
        event = json.loads(message.data)  # a CloudEvent: attributes, and the event itself as `data`
        nodes: Counter[str] = Counter()  # a node may be named more than once
        for node, pods in event["data"]["bindings"]:
            nodes[node] += len(pods)
        places = ", ".join(f"{count} on {node}" for node, count in nodes.items())
        print(f"{event['id']} {event['time']} {event['subject']}: {sum(nodes.values())} pods, {places}", flush=True)
        await message.ack()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: subscriber.py URL CLUSTER")
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        pass
