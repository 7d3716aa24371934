# shellcheck shell=bash disable=SC2034
# Arguments for Megatron-LM 0.19. Source this file and pass "${MEGATRON_ARGS[@]}".
MEGATRON_ARGS=(
  # model
  --num-layers 80
  --hidden-size 8192
  --ffn-hidden-size 28672
  --num-attention-heads 64
  --group-query-attention
  --num-query-groups 8
  --kv-channels 128
  --disable-bias-linear
  --swiglu
  --normalization RMSNorm
  --norm-epsilon 1e-05
  --untie-embeddings-and-output-weights
  --position-embedding-type rope
  --rotary-base 500000
  --rotary-percent 1.0
  --use-rope-scaling
  --rope-scaling-factor 8.0
  --max-position-embeddings 131072
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --vocab-size 128256
  --make-vocab-size-divisible-by 128
  # parallelism
  --tensor-model-parallel-size 8
  --pipeline-model-parallel-size 8
  --context-parallel-size 8
  --expert-model-parallel-size 1
  --expert-tensor-parallel-size 8
  --sequence-parallel
  --cp-comm-type p2p
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
  --distributed-timeout-minutes 30
  # pipeline
  --num-virtual-stages-per-pipeline-rank 5
  # batch
  --seq-length 131072
  --micro-batch-size 1
  --global-batch-size 64
  --train-iters 1000
  --eval-iters 0
  --lr 0.0001
  --min-lr 1e-05
  --lr-decay-style cosine
  --lr-warmup-fraction 0.01
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.95
  --clip-grad 1.0
  # precision
  --bf16
  --transformer-impl transformer_engine
  --attention-backend auto
  # data
  --mock-data
  --tokenizer-type NullTokenizer
  --no-create-attention-mask-in-dataloader
  # checkpoint
  --ckpt-format torch_dist
  # log
  --log-interval 1
  --log-throughput
  --manual-gc
  --manual-gc-interval 100
)
