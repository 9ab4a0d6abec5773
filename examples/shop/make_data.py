"""Writes the example incident's logs and database, byte for byte the same every time.

    python examples/shop/make_data.py [TARGET]

The story (Asia/Shanghai, 12 March 2026): at 14:02 a configuration rollout lowers payment-service's connection pool from
40 to 5. When traffic rises after 14:08 the pool runs dry, checkout fails and orders stay in PAYMENT_PENDING. Loud but
unrelated: a Redis failover at 12:41, over by 12:49, and the report job's slow SQL in the morning.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

ZONE = timezone(timedelta(hours=8))
START = datetime(2026, 3, 12, 12, 0, tzinfo=ZONE)
END = datetime(2026, 3, 12, 14, 35, tzinfo=ZONE)
REDIS_FROM, REDIS_TO = START + timedelta(minutes=41), START + timedelta(minutes=49)
ROLLOUT = datetime(2026, 3, 12, 14, 2, 17, tzinfo=ZONE)
DRY_FROM = datetime(2026, 3, 12, 14, 8, 40, tzinfo=ZONE)
PRODUCTS = ("帆布鞋", "保温杯", "键盘", "双肩包", "台灯", "耳机")
SECONDS_BETWEEN_ORDERS = 9

SCHEMA = """
CREATE TABLE orders (
  id TEXT PRIMARY KEY, customer_id INTEGER NOT NULL, status TEXT NOT NULL, amount_cents INTEGER NOT NULL,
  created_at TEXT NOT NULL, updated_at TEXT NOT NULL
);
CREATE TABLE payments (
  id INTEGER PRIMARY KEY, order_id TEXT NOT NULL, provider TEXT NOT NULL, status TEXT NOT NULL, created_at TEXT NOT NULL
);
CREATE TABLE slow_queries (
  id INTEGER PRIMARY KEY, source TEXT NOT NULL, seconds REAL NOT NULL, statement TEXT NOT NULL, started_at TEXT NOT NULL
);
"""

STACK = """\
java.sql.SQLTransientConnectionException: PaymentPool - Connection is not available, request timed out after 30000ms.
\tat com.zaxxer.hikari.pool.HikariPool.createTimeoutException(HikariPool.java:696)
\tat com.zaxxer.hikari.pool.HikariPool.getConnection(HikariPool.java:197)
\tat com.example.shop.payment.PaymentRepository.insert(PaymentRepository.java:58)
\tat com.example.shop.payment.PaymentService.charge(PaymentService.java:112)
\tat com.example.shop.payment.PaymentController.pay(PaymentController.java:41)"""


class Shop:
    """Collects lines per log file and rows per table while time passes."""

    def __init__(self) -> None:
        self.random = random.Random(20260312)
        self.lines: dict[str, list[tuple[datetime, str]]] = {"gateway": [], "checkout": [], "payment": [], "deploy": []}
        self.orders: list[tuple[str, int, str, int, str, str]] = []
        self.payments: list[tuple[int, str, str, str, str]] = []

    def gateway(self, at: datetime, path: str, status: int, millis: int) -> None:
        """One access line."""
        client = f"10.8.{self.random.randrange(4)}.{self.random.randrange(2, 250)}"
        stamp = at.strftime("%d/%b/%Y:%H:%M:%S %z")
        size = self.random.randrange(180, 4200)
        line = f'{client} - - [{stamp}] "POST {path} HTTP/1.1" {status} {size} "-" "ShopApp/8.4" rt={millis / 1000:.3f}'
        self.lines["gateway"].append((at, line.replace("POST", "GET") if status == 200 and "orders" in path else line))

    def checkout(
        self, at: datetime, level: str, message: str, service: str = "checkout-service", **more: object
    ) -> None:
        """One JSON line."""
        instance = f"{service.removesuffix('-service')}-{self.random.randrange(1, 4)}"
        event = {"timestamp": at.isoformat(timespec="milliseconds"), "level": level, "service": service}
        event |= {"instance": instance, "message": message, **more}
        self.lines["checkout"].append((at, json.dumps(event, ensure_ascii=False)))

    def payment(self, at: datetime, level: str, logger: str, message: str) -> None:
        """One line of a Java service; `message` may hold a stack trace."""
        stamp = at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03d}"
        thread = f"http-nio-8080-exec-{self.random.randrange(1, 33)}"
        self.lines["payment"].append((at, f"{stamp} {level:<5} [{thread}] c.e.shop.payment.{logger} - {message}"))

    def deploy(self, at: datetime, message: str) -> None:
        """One line of the rollout log."""
        self.lines["deploy"].append((at, f"{at.isoformat(timespec='seconds')} INFO  rollout: {message}"))


def sql_time(at: datetime) -> str:
    """A time as the database holds it: without a zone, as clocks in Shanghai show it."""
    return f"{at:%Y-%m-%d %H:%M:%S}"


def order(shop: Shop, number: int, at: datetime) -> None:
    """One customer's order, from browsing to payment."""
    rand = shop.random
    order_id, customer, cents = f"SO20260312{number:05d}", rand.randrange(10_000, 99_999), rand.randrange(1900, 89_900)
    shop.gateway(at - timedelta(seconds=4), "/api/orders/recent", 200, rand.randrange(12, 90))
    shop.checkout(
        at,
        "INFO",
        f"收到结算请求 order={order_id} 商品={rand.choice(PRODUCTS)} 金额={cents / 100:.2f}",
        order_id=order_id,
    )
    if rand.random() < 0.5:
        shop.checkout(at + timedelta(milliseconds=40), "INFO", f"stock reserved order={order_id}", "inventory-service")
    fails = at >= DRY_FROM and rand.random() < 0.78
    provider = rand.choice(("alipay", "wechatpay", "unionpay"))
    if fails:
        failed_order(shop, order_id, at)
    else:
        millis = rand.randrange(90, 420)
        done = at + timedelta(milliseconds=millis)
        shop.payment(done, "INFO", "PaymentService", f"charge ok order={order_id} provider={provider} cost={millis}ms")
        shop.checkout(done, "INFO", f"结算成功 order={order_id} cost={millis + 35}ms", order_id=order_id)
        shop.gateway(done, "/api/checkout", 200, millis + 48)
        shop.payments.append((len(shop.payments) + 1, order_id, provider, "CAPTURED", sql_time(done)))
    status = "PAYMENT_PENDING" if fails else rand.choice(("PAID", "PAID", "PAID", "SHIPPED"))
    created = sql_time(at)
    shop.orders.append((order_id, customer, status, cents, created, created))


def failed_order(shop: Shop, order_id: str, at: datetime) -> None:
    """The pool is dry: payment waits 30 s for a connection, checkout gives up, the gateway answers 504."""
    late = at + timedelta(milliseconds=30_000 + shop.random.randrange(2, 40))
    if late >= END:
        return
    waiting = shop.random.randrange(14, 61)
    pool = f"PaymentPool - Pool stats (total=5, active=5, idle=0, waiting={waiting})"
    shop.payment(late, "WARN", "PoolWatch", pool)
    failure = f"charge failed order={order_id}: could not obtain a database connection"
    detail = "\n" + STACK if shop.random.random() < 0.25 else ": " + STACK.split("\n", 1)[0]
    shop.payment(late, "ERROR", "PaymentController", failure + detail)
    message = f"结算失败：调用 payment-service 超时 order={order_id} cost={30_000 + shop.random.randrange(5, 60)}ms"
    shop.checkout(late, "ERROR", message, order_id=order_id, upstream="payment-service")
    shop.gateway(late, "/api/checkout", 504, 30_000 + shop.random.randrange(5, 90))


def background(shop: Shop) -> None:
    """Health checks, rollouts of other services, the Redis failover, harmless warnings."""
    rand = shop.random
    at = START
    while at < END:
        active = 5 if at >= DRY_FROM else rand.randrange(3, 5) if at >= ROLLOUT else rand.randrange(4, 15)
        total = 5 if at >= ROLLOUT else 40
        waiting = rand.randrange(14, 61) if at >= DRY_FROM else 0
        if not waiting:
            stats = f"PaymentPool - Pool stats (total={total}, active={active}, idle={total - active}, waiting=0)"
            shop.payment(at, "DEBUG", "PoolWatch", stats)
        if rand.random() < 0.2:
            shop.checkout(
                at,
                "WARN",
                f"cdn image slow: GET /img/{rand.randrange(900)}.webp took {rand.randrange(900, 2400)}ms",
                "web-service",
            )
        if rand.random() < 0.15:
            shop.checkout(at, "INFO", f"优惠券校验通过 coupon=C{rand.randrange(1000, 9999)}")
        at += timedelta(seconds=30)
    at = REDIS_FROM
    while at < REDIS_TO:
        text = "redis cart-cache: READONLY You can't write against a read only replica."
        shop.checkout(
            at,
            "ERROR",
            rand.choice((text, "redis cart-cache: connection refused, retrying", "购物车缓存写入失败：Redis 只读")),
            "cart-service",
        )
        at += timedelta(seconds=rand.randrange(3, 8))
    shop.checkout(
        REDIS_TO,
        "WARN",
        "redis cart-cache: failover finished, new primary redis-2, writes accepted again",
        "cart-service",
    )
    rollouts = (
        (START + timedelta(minutes=6), "web-service image 8.4.1 -> 8.4.2"),
        (START + timedelta(minutes=58), "inventory-service image 3.2.0 -> 3.2.1"),
        (START + timedelta(minutes=87), "search-service config search.page.size: 20 -> 24"),
    )
    for number, (moment, what) in enumerate(rollouts, start=4118):
        _rollout(shop, moment, number, what, "release-bot")
    _rollout(shop, ROLLOUT, 4127, "payment-service config db.pool.max_size: 40 -> 5", "cost-review")
    _rollout(
        shop, ROLLOUT + timedelta(minutes=19), 4128, "web-service config banner.spring_sale: off -> on", "marketing"
    )


def _rollout(shop: Shop, at: datetime, number: int, what: str, by: str) -> None:
    shop.deploy(at, f"#{number} started: {what} (by {by})")
    for pod in range(1, 4):
        shop.deploy(at + timedelta(seconds=20 * pod), f"#{number} pod {pod}/3 ready")
    shop.deploy(at + timedelta(seconds=75), f"#{number} finished: {what}")


def build() -> Shop:
    """Let the day pass."""
    shop = Shop()
    number, at = 1, START + timedelta(seconds=3)
    while at < END:
        order(shop, number, at)
        number += 1
        busy = 0.6 if at >= DRY_FROM else 1.0
        at += timedelta(milliseconds=int(1000 * SECONDS_BETWEEN_ORDERS * busy * (0.5 + shop.random.random())))
    background(shop)
    return shop


def slow_queries(rand: random.Random) -> list[tuple[int, str, float, str, str]]:
    """The report job's slow SQL of the morning; none of payment-service."""
    statement = "SELECT customer_id, SUM(amount_cents) FROM orders GROUP BY customer_id"
    day = datetime(2026, 3, 12, 6, 30, tzinfo=ZONE)
    return [
        (
            i,
            "report-job",
            round(4 + 9 * rand.random(), 2),
            statement,
            sql_time(day + timedelta(minutes=7 * i)),
        )
        for i in range(1, 25)
    ]


def write_database(shop: Shop, path: Path) -> None:
    """Write the SQLite file, with a fixed library version in its header, so that the bytes never differ."""
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA page_size=4096")
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.executescript(SCHEMA)
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO orders VALUES (?,?,?,?,?,?)", shop.orders)
    connection.executemany("INSERT INTO payments VALUES (?,?,?,?,?)", shop.payments)
    connection.executemany("INSERT INTO slow_queries VALUES (?,?,?,?,?)", slow_queries(random.Random(7)))
    connection.execute("COMMIT")
    connection.execute("VACUUM")
    connection.close()
    content = bytearray(path.read_bytes())
    content[24:28] = content[92:96] = (1).to_bytes(4, "big")
    content[96:100] = (3_040_000).to_bytes(4, "big")
    path.write_bytes(bytes(content))


def write(target: Path) -> None:
    """Write `logs/` and `shop.db` below the target folder."""
    shop = build()
    (target / "logs").mkdir(parents=True, exist_ok=True)
    for name, lines in shop.lines.items():
        suffix = "jsonl" if name == "checkout" else "log"
        kept = [line for at, line in sorted(lines, key=lambda item: item[0]) if START <= at < END]
        (target / "logs" / f"{name}.{suffix}").write_bytes(("\n".join(kept) + "\n").encode())
    write_database(shop, target / "shop.db")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent)
