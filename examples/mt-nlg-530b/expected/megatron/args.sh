# shellcheck shell=bash disable=SC2034
# Arguments for Megatron-LM 0.19. Source this file and pass "${MEGATRON_ARGS[@]}".
MEGATRON_ARGS=(
  # model
  --num-layers 105
  --hidden-size 20480
  --ffn-hidden-size 81920
  --num-attention-heads 128
  --kv-channels 160
  --normalization LayerNorm
  --norm-epsilon 1e-05
  --position-embedding-type learned_absolute
  --max-position-embeddings 2048
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --vocab-size 51200
  --make-vocab-size-divisible-by 128
  # parallelism
  --tensor-model-parallel-size 8
  --pipeline-model-parallel-size 35
  --context-parallel-size 1
  --expert-model-parallel-size 1
  --expert-tensor-parallel-size 8
  --sequence-parallel
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
  --distributed-timeout-minutes 30
  # batch
  --seq-length 2048
  --micro-batch-size 1
  --global-batch-size 1920
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
