"""Labelled questions for the offline router.

`SEEN`, `SEEN_TOO` and `POLITE` shaped its rules; `FRESH` was written afterwards and changed none.
"""

from __future__ import annotations

SEEN = {
    "DIAGNOSIS": """
订单服务 5xx 突增, 为什么?
结算为什么失败？
支付接口今天上午 10 点开始超时, 帮忙看看
redis-01 连接超时怎么回事
昨晚 2 点网关大量 502
payment-service 的 pod 一直重启
数据库连接池耗尽了，原因是什么？
有没有 checkout 的报错？
查一下 order-service 的错误日志
磁盘满了
OOMKilled
refund 任务积压越来越多
application-logs 里最近有哪些错误
库存服务延迟飙升，诊断一下
为什么用户登录不上
Why are checkouts failing?
What is wrong with the payment service?
Orders return 500 since 10:30, what happened?
gateway 5xx spike right now
The order-service keeps restarting
find errors in application-logs
Are there any failed refunds in the orders database today?
pods are stuck in CrashLoopBackOff
investigate the latency of the cart service
What is the error rate of gateway-logs?
Kafka consumer lag is growing
Redis connection refused
root cause of yesterday's outage?
""",
    "KNOWLEDGE_QUERY": """
怎么处理 Redis 连接超时?
如何回滚配置？
KubePodCrashLooping 是什么意思
慢 SQL 的处理步骤
什么是连接池耗尽
退款积压的排查流程是什么?
网关 5xx 的手册里怎么写
怎么扩容 Kafka 集群
NodeFilesystemAlmostOutOfSpace 告警什么时候触发
如何排查内存泄漏
证书过期该怎么处理
有没有回滚的操作规范
数据库主从切换的预案
连接池大小的阈值是多少?解释一下
怎样安全地重启网关
How do I roll back a configuration?
What is KubePodCrashLooping?
how to handle a full disk
Runbook for slow SQL
What does the alert etcdInsufficientMembers mean?
What are the steps to restart the gateway?
What should I check when a pod is OOMKilled?
explain connection pool exhaustion
procedure for refund backlog
best practice for redis eviction
How can I drain a node?
When should I escalate a payment incident?
What is the meaning of error code 1040?
""",
    "SYSTEM_CHAT": """
你好
您好！
谢谢你
你是谁?
你能做什么
你可以查哪些日志?
有哪些数据源
知识库里有多少文档?有哪些手册?
介绍一下你自己
能查什么
列出所有主题
这个助手能做什么
早上好
怎么使用你
有哪些表
hello
Hi there!
thanks a lot
Who are you?
What can you do?
Which log topics do you have?
What databases can you query?
list the runbooks
help
How can you help me?
which documents are available?
what tables does the orders database have?
good morning
""",
}

SEEN_TOO = {
    "DIAGNOSIS": """
购物车加载特别慢，用户投诉很多
MySQL 主库 CPU 100%
昨天 23:15 到 23:40 订单创建失败率升高
为啥优惠券发不出去
k8s 节点 NotReady
消息队列堆积，消费者没有报错
grafana 显示 p99 从 200ms 涨到 3s
搜索服务返回空结果
帮我分析一下这次发布后错误变多的原因
库存扣减出现负数
ConnectionResetError in checkout
Users cannot log in
The nightly job did not finish
Latency of search went from 200ms to 3s after the deployment
disk usage on node-3 at 97%
Did anything fail in the payment gateway between 02:00 and 03:00?
Which pods were evicted last night?
502 Bad Gateway from nginx
Customers complain about duplicate charges
something broke after we deployed version 2.4
""",
    "KNOWLEDGE_QUERY": """
Redis 内存淘汰策略有哪些，怎么选
灰度发布的标准流程
CPUThrottlingHigh 告警表示什么
如何给 MySQL 加索引不锁表
线上变更需要谁审批？
怎么看懂慢查询日志
遇到死锁应该怎么办
网关限流的配置在哪里改
Prometheus 告警 Watchdog 是干什么的
怎么联系值班 DBA
502 和 504 的区别
pod 驱逐之后要做哪些检查
How is the connection pool supposed to be sized?
What does KubeQuotaExceeded mean
Tell me how to rotate certificates
Is there a guide for restoring a backup?
which steps does the config rollback have
difference between liveness and readiness probes
Who do I call when payments are down?
how often should etcd be defragmented
""",
    "SYSTEM_CHAT": """
嗨，早
你支持哪些数据源？
你这里接了哪些日志
你能帮我做什么呢
请问你是人还是机器人
知识库里都有什么
好的，谢谢！
你能访问生产数据库吗
我该怎么向你提问
你知道哪些服务
Hey, are you there?
Could you tell me what you're able to do?
what kind of questions can I ask
What data do you have access to?
show me all topics
do you have runbooks about redis?
ok thank you
Are you a bot?
is the orders database connected?
what's your name
""",
}

FRESH = {
    "DIAGNOSIS": """
会员积分没有到账
订单导出接口返回 504
ES 集群变红了
定时任务今早没跑
商品详情页打不开，报 NullPointerException
推送服务内存持续上涨
支付回调丢单，麻烦定位一下原因
哪个服务在疯狂打印错误日志？
发布 3.2.1 之后登录成功率下降
redis 主从延迟很大
unable to connect to mysql from order-service
Our checkout page takes 20 seconds to load
Half of the webhooks were not delivered
node exporter reports high iowait on db-2
Is the payment service throwing errors?
emails are not being sent
Memory of the search pods grows until they get killed
We see TLS handshake failures between gateway and auth
can you check why the import job failed
duplicate key violation in table orders
""",
    "KNOWLEDGE_QUERY": """
新人入职怎么申请日志权限
HTTP 499 状态码是什么意思
数据库备份多久做一次
故障升级流程
Kafka 消息积压时该先做什么
滚动发布和蓝绿发布有什么不同
怎么确认主从同步正常
PodDisruptionBudget 的作用
紧急回滚需要哪些审批
如何临时关闭限流
What is an error budget?
how do we clear the cart cache safely
where is the on-call rotation documented?
Explain what HighErrorRate alerts on
steps for failing over the database
What's the difference between 502 and 504?
what do I do if the disk is full
Which document describes the refund process?
recommended settings for the JVM heap
how long are logs kept
""",
    "SYSTEM_CHAT": """
哈喽，你好呀
麻烦你了，谢谢
你都会些什么
你可以查询哪些数据库
现在接入了哪些日志主题
有多少篇文档
你能看到监控指标吗
你用的是什么模型
怎么跟你说问题比较好
帮助
Good evening
thx
What are your limitations?
can you read the production logs?
list all datasources
how many documents are there
what sources of data are connected
Do you speak Chinese?
what topics can I ask about
tell me about yourself
""",
}

POLITE = {
    "DIAGNOSIS": """
Why has this service been failing for 10 minutes?
Do you know why orders are stuck?
Can you search the payment logs for errors since 14:10?
This service is down for all users
你知道为什么支付挂了吗
你能查一下为什么订单失败吗
这个系统会突然报错，为什么？
this system does not work since 10:00
Why did this service stop doing health checks?
Can you check why checkout fails?
do you have any idea why the payment service is down?
Could you tell me what is wrong with the cart?
Can you see errors in the payment logs?
Are you able to see why the gateway times out?
do you know whether the order pods crashed
Can you search the gateway logs for order 4711?
Your data source orders is unreachable, why?
This tool keeps restarting for no reason
do you have an idea what happened at 02:00
Hello, why does checkout fail?
Hi, orders are stuck since this morning
What errors can you see in the payment service?
Can you query how many orders failed today?
How come payments failed yesterday?
你能查下支付为什么失败吗
你是不是能帮我看下为什么结算失败
你有没有发现支付服务挂了？
你会不会知道支付失败原因
你好，订单服务突然大量超时
你能帮我排查一下网关 502 吗
你知道昨晚支付发生了什么吗
本系统今天上午一直报错
你可以帮忙分析一下库存扣减失败的原因吗
你有没有看到最近的报错
请问支付服务是不是挂了
你看到支付的报错了吗
What do you know about the outage on Friday?
what do you see in the payment logs
can i ask you about the payment outage?
谢谢，不过订单还是失败，为什么
""",
    "KNOWLEDGE_QUERY": """
how do I restart the payment service
Do you know how to restart the payment service?
Can you tell me what the steps for a rollback are?
do you know what KubePodCrashLooping means?
Could you explain to me how to drain a node
who should I call about a broken payment
支付服务怎么重启
你知道怎么重启支付服务吗
你能告诉我如何清理购物车缓存吗
你知道什么是连接池耗尽吗
你有什么办法恢复支付
你好，请问支付服务怎么重启
请问回滚的步骤是什么
你能教我怎么看慢查询日志吗
""",
    "SYSTEM_CHAT": """
what topics do you have
Do you know what topics exist?
what can you do right now?
So what can you help me with?
Which problems can you investigate?
What is this assistant for?
What does this tool do?
How does this bot work?
Can you read logs?
do you have databases
Are you a language model?
thanks, bye
Hello again
Who made you?
你能做什么
你现在能做什么
你能帮我查什么
你可以排查哪些问题
你是谁啊
你叫什么名字
你有哪些手册
现在有哪些数据源
这个助手是做什么的
你支持英文吗
你连了哪些数据库
多谢，辛苦了
how are you?
你用什么模型
你记得我上一个问题吗
Hello, what can you do?
在吗
""",
}
